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
        cause: "The step from one node, which has no other to send to, to two is short.",
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
        panel: "drtm-recovery-times",
        claims: &[],
        cause: "The published value is a bound, of 90 machines; ours stays below it, with 6.",
    },
    Known {
        panel: "drtmh-fig7a",
        claims: &[
            ratio(CACHED, TWO_SIDED, At::Each, Span::between(1.26, 1.45)),
            ratio(TWO_SIDED, ONE_SIDED, At::Each, Span::up_to(1.28)),
            ratio(ONE_SIDED, TWO_SIDED, At::Peak, Span::of(1.13)),
        ],
        cause: "With ten coroutines the processors are the limit. A row that is not cached takes two reads, and \
                each is posted and polled for, where a message carries several rows: 17 one-sided operations a \
                transaction, or 7.6 messages and their replies.",
    },
    Known {
        panel: "drtmh-fig7b",
        claims: &[
            ratio(CACHED, TWO_SIDED, At::Each, Span::up_to(1.36)),
            ratio(TWO_SIDED, ONE_SIDED, At::Each, Span::between(1.13, 2.01)),
        ],
        cause: "With one coroutine messages are ahead, by 1.27. With ten, the processors are the limit, which \
                serve 2.8 messages for the reads of a transaction, each row at 549 instructions; verbs leave \
                them alone.",
    },
    Known {
        panel: "drtmh-fig10a",
        claims: &[ratio(ONE_SIDED, TWO_SIDED, At::Each, Span::between(1.24, 1.29))],
        cause: "With ten coroutines a round of logs takes 34 us by verbs and 60 us by messages, of 450 us in \
                all: the logs are 3 of the 16 rounds of a transaction, and the processors, which are the limit, \
                apply the records in both forms.",
    },
    Known {
        panel: "drtmh-fig10b",
        claims: &[ratio(ONE_SIDED, TWO_SIDED, At::Each, Span::between(1.10, 1.12))],
        cause: "",
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
        cause: "With ten coroutines the processors are the limit: a transaction takes 51 us of a thread as FaSST \
                does it, 47 us as FaRM does, and 42 us as DrTM+H does. 4 nodes are simulated, and 16 with --full.",
    },
    Known {
        panel: "drtmh-fig14b",
        claims: &[Claim::Order { at: At::Peak, best_first: &[&["DrTM+H"], &["DrTM+R"], &["FaRM", "FaSST"]] }],
        cause: "With ten coroutines DrTM+R and DrTM+H post as many verbs, 9.2 for each transaction, and are \
                equal but for what differs by the seed.",
    },
    Known {
        panel: "drtmh-fig17a",
        claims: &[Claim::Order { at: At::Peak, best_first: &[&["DrTM+H"], &["FaSST"], &["FaRM"], &["DrTM+R"]] }],
        cause: "With ten coroutines the processors are the limit: a transaction takes 50 us of a thread as FaSST \
                does it, and 51 us as DrTM+H does, which sends messages in all phases there. That it reads rows \
                at the same time saves waiting, and no work.",
    },
    Known {
        panel: "drtmh-fig17b",
        claims: &[Claim::Order { at: At::Peak, best_first: &[&["DrTM+H"], &["FaSST"], &["FaRM"], &["DrTM+R"]] }],
        cause: "",
    },
    Known {
        panel: "hades-fig3",
        claims: &[],
        cause: "Shares of all of a client's time. Where requests write, rows are hot, and it waits 7 % of that for \
                reads and 4 % to find conflicts: the rest are pauses between the runs of a transaction, which are \
                none of the five overheads. Where none writes, reading itself takes 51 %.",
    },
    Known {
        panel: "hades-fig9",
        claims: &[],
        cause: "Where nothing conflicts, in TATP and SmallBank, the ratios are 1.9 and 1.7. The four workloads with \
                5 % writes make the means: 6.9 and 6.4. The software claims rows there, by 4.4 messages for each \
                commit of HT-wB, and waits 54 of 406 us for rounds of requests, HADES 22 of 58. The rest are pauses.",
    },
    Known {
        panel: "hades-evictions",
        claims: &[],
        cause: "None of 4,144 transactions of HT-wA met another one, though rows are hot: a local transaction runs \
                within one turn of its worker, so that no other core's access comes between what it writes and its \
                commit.",
    },
    Known {
        panel: "hades-false",
        claims: &[],
        cause: "By Table IV's theory, filters of 5.6 lines have 0.012 %, and filters of ten have 0.04 %: fewer lines \
                are in a filter here when it is checked.",
    },
    Known {
        panel: "hades-tab4b",
        claims: &[],
        cause: "The published values are within 40 % of the theory of one hash in each part, on either side.",
    },
];
