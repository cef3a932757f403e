//! What the papers' texts say of a figure without giving its values: ratios and orders. And why
//! ours differ, where this was found out.

use drtm_report::chart::Span;

use super::super::panel::Panel;

/// A statement about a figure.
#[derive(Clone, Copy, Debug)]
pub(super) enum Claim {
    /// One series is so many times as high as another.
    Ratio { of: &'static str, over: &'static str, at: At, published: Span },
    /// Which series is highest, which next. Those of a group are about equal.
    Order { at: At, best_first: &'static [&'static [&'static str]] },
}

/// At which places of the horizontal axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum At {
    /// At each of them, so that a ratio has a range.
    Each,
    /// At one.
    X(usize),
    /// Wherever each series is highest.
    Peak,
}

impl At {
    pub(super) fn name(self, panel: &Panel) -> String {
        match self {
            Self::Each => "at each point".to_owned(),
            Self::X(x) => panel.place(Some(x)),
            Self::Peak => "at the peaks".to_owned(),
        }
    }
}

/// What is known of a panel beyond its values.
#[derive(Debug)]
pub(super) struct Known {
    pub(super) panel: &'static str,
    pub(super) claims: &'static [Claim],
    /// Why ours differ; empty if nothing is known.
    pub(super) cause: &'static str,
}

/// Returns what is known of a panel.
pub(super) fn known(panel: &str) -> &'static Known {
    const NOTHING: Known = Known { panel: "", claims: &[], cause: "" };
    KNOWN.iter().find(|known| known.panel == panel).unwrap_or(&NOTHING)
}

const fn ratio(of: &'static str, over: &'static str, at: At, published: Span) -> Claim {
    Claim::Ratio { of, over, at, published }
}

const TWO_SIDED: &str = "two-sided";
const ONE_SIDED: &str = "one-sided";
const CACHED: &str = "one-sided, cached";

pub(super) const KNOWN: &[Known] = &[
    Known {
        panel: "dbx-fig1a",
        claims: &[],
        cause: "The model has no stack, code or operating system that take a part of the cache and of the time, and \
                its tracker of reads is exact up to its size.",
    },
    Known {
        panel: "dbx-fig1b",
        claims: &[],
        cause: "A sibling takes half of the ways and half of the tracker, always, so that writes end at 16 KB and \
                reads at 2 MB. In the paper siblings compete for lines.",
    },
    Known {
        panel: "dbx-fig1c",
        claims: &[],
        cause: "Reads ahead of the writes are held to the tracker only, and so to 4 MB, where the paper found 3 MB.",
    },
    Known {
        panel: "dbx-fig13",
        claims: &[ratio("hash tables and trees", "trees only", At::X(8), Span::of(1.146))],
        cause: "",
    },
    Known {
        panel: "dbx-fig5",
        claims: &[ratio("commits in RTM", "Silo-Masstree", At::X(8), Span::of(1.40))],
        cause: "",
    },
    Known {
        panel: "dbx-fig10b",
        claims: &[],
        cause: "Nothing but the store's own lines uses the simulated cache, and threads do not conflict; the paper's \
                transactions also touch private memory, and conflict.",
    },
    Known {
        panel: "dbx-fig9a",
        claims: &[],
        cause: "Aborts are counted with this run's threads, whose htm transactions conflict by chance.",
    },
    Known {
        panel: "drtm-tab1a",
        claims: &[],
        cause: "The store's layouts differ from the paper's, and private memory is not counted. Its SmallBank looks \
                customers up by their names, ours by their numbers.",
    },
    Known {
        panel: "drtm-tab1b",
        claims: &[],
        cause: "Whole cache lines of this store's layout are counted, without private memory; read-only transactions \
                write only the line that marks their thread as active.",
    },
    Known {
        panel: "drtm-tab1c",
        claims: &[],
        cause: "Only the cache's sets and ways end a transaction here. The paper's threads also conflict: nearly all \
                of its PAYMENTs that fall back do so for that.",
    },
    Known { panel: "drtm-tab1d", claims: &[], cause: "In simulation there is no other cause than capacity." },
    Known {
        panel: "drtm-fig2b",
        claims: &[],
        cause: "768 bytes are 12 lines among 64 sets of 8 ways: nine of them in one set is next to impossible. \
                Random writes on that machine had another limit, which is not in a model of the cache.",
    },
    Known {
        panel: "drtm-fig16a",
        claims: &[ratio("DrTM", "Calvin", At::X(1), Span::of(32.9)), ratio("DrTM", "Calvin", At::X(6), Span::of(29.6))],
        cause: "A transaction of DrTM takes a thread 27 us on one node, where nothing is sent and nothing conflicts: \
                all of it is charged processor time. The paper's took 11.4 us. Calvin's throughput is the setting of \
                its sequencers, 20,000 a second of each node.",
    },
    Known {
        panel: "drtm-s86",
        claims: &[],
        cause: "The step from one node, which has no other to send to, to two is short; each later one adds 0.52 to \
                0.65 of one node.",
    },
    Known {
        panel: "drtm-fig18b",
        claims: &[],
        cause: "The paper's nodes commit local transactions in htm transactions, so that a remote item costs more \
                there, relative to a local one.",
    },
    Known {
        panel: "drtm-fig19",
        claims: &[ratio("leases", "locks", At::X(6), Span::of(1.29))],
        cause: "Leases have little to save here: of 100 transactions, 12 find a hot record locked if readers lock \
                it, and 4 find a lease expired.",
    },
    Known {
        panel: "drtmh-fig7a",
        claims: &[
            ratio(CACHED, TWO_SIDED, At::Each, Span::between(1.26, 1.45)),
            ratio(TWO_SIDED, ONE_SIDED, At::Each, Span::up_to(1.28)),
            ratio(ONE_SIDED, TWO_SIDED, At::Peak, Span::of(1.13)),
        ],
        cause: "",
    },
    Known {
        panel: "drtmh-fig7b",
        claims: &[
            ratio(CACHED, TWO_SIDED, At::Each, Span::up_to(1.36)),
            ratio(TWO_SIDED, ONE_SIDED, At::Each, Span::between(1.13, 2.01)),
        ],
        cause: "Messages are ahead with one and four coroutines, as in the paper. With ten and more, processors \
                are the limit here, and verbs leave the owner's alone.",
    },
    Known {
        panel: "drtmh-fig10a",
        claims: &[ratio(ONE_SIDED, TWO_SIDED, At::Each, Span::between(1.24, 1.29))],
        cause: "With one coroutine a round of logs takes 3.1 us by verbs and 3.8 us by messages: there is little to \
                gain. Messages are cheaper here than in the paper.",
    },
    Known {
        panel: "drtmh-fig10b",
        claims: &[ratio(ONE_SIDED, TWO_SIDED, At::Each, Span::between(1.10, 1.12))],
        cause: "With one coroutine a round of logs takes 3.1 us by verbs and 3.8 us by messages: there is little to \
                gain.",
    },
    Known {
        panel: "drtmh-fig11",
        claims: &[
            ratio(ONE_SIDED, TWO_SIDED, At::Peak, Span::of(1.10)),
            ratio(CACHED, ONE_SIDED, At::Peak, Span::of(1.20)),
        ],
        cause: "",
    },
    Known {
        panel: "drtmh-fig14a",
        claims: &[
            ratio("DrTM+H", "FaSST", At::Each, Span::between(1.41, 2.96)),
            ratio("DrTM+H", "DrTM+R", At::Each, Span::between(1.12, 1.89)),
            ratio("DrTM+H", "FaRM", At::Each, Span::between(1.21, 2.50)),
            Claim::Order { at: At::Peak, best_first: &[&["DrTM+H"], &["DrTM+R"], &["FaRM"], &["FaSST"]] },
        ],
        cause: "Messages are cheaper here than in the paper, where reads by verbs take 41 % less time than reads by \
                message (Fig. 15). 4 nodes are simulated, and 16 with --full.",
    },
    Known {
        panel: "drtmh-fig14b",
        claims: &[Claim::Order { at: At::Peak, best_first: &[&["DrTM+H"], &["DrTM+R"], &["FaRM", "FaSST"]] }],
        cause: "",
    },
    Known {
        panel: "drtmh-fig17a",
        claims: &[Claim::Order { at: At::Peak, best_first: &[&["DrTM+H"], &["FaSST"], &["FaRM"], &["DrTM+R"]] }],
        cause: "",
    },
    Known {
        panel: "drtmh-fig17b",
        claims: &[Claim::Order { at: At::Peak, best_first: &[&["DrTM+H"], &["FaSST"], &["FaRM"], &["DrTM+R"]] }],
        cause: "",
    },
    Known {
        panel: "hades-tab4b",
        claims: &[],
        cause: "The published values are within 40 % of the theory of one hash in each part, on either side.",
    },
];
