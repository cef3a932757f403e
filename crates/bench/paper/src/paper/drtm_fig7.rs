//! DrTM, Fig. 7: how many pieces TPC-C's transactions have.

use drtm_chopping::{Chopping, Options, Program, programs};
use drtm_report::{
    chart::{Axis, Scale},
    units::Quantity,
};

use super::{
    effort::Effort,
    panel::{Curve, Found, Kind, Measured, Panel, Published, Study},
};
use crate::Error;

pub(super) const STUDIES: &[Study] = &[Study { panels: &[DEFAULT, REORDERED, OPTIMISED], measure }];

const PIECES: Axis = Axis { title: "pieces", quantity: Quantity::Pieces, scale: Scale::Linear };

const DEFAULT: Panel = Panel {
    name: "drtm-fig7a",
    title: "DrTM Fig. 7: pieces of TPC-C's transactions by the classical analysis",
    x: None,
    y: PIECES,
    published: &[],
    note: "The paper draws the graph and gives no numbers, but that NEW-ORDER has four pieces: see drtm-fig7b. \
           drtm-bench chop --without all --svg FILE draws it.",
};

const REORDERED: Panel = Panel {
    name: "drtm-fig7b",
    title: "DrTM Fig. 7: pieces of TPC-C's transactions with independent pieces reordered",
    x: None,
    y: PIECES,
    published: &[Published::of("new-order", 4.0)],
    note: "The reads of item, warehouse and customer leave NEW-ORDER's conflicting piece, and that of item, \
           which may abort, runs first.",
};

const OPTIMISED: Panel = Panel {
    name: "drtm-fig7c",
    title: "DrTM Fig. 7: pieces of TPC-C's transactions with all optimisations",
    x: None,
    y: PIECES,
    published: &[],
    note: "Searches in indexes are pieces of their own, as in the paper. DELIVERY's orders leave its conflicting \
           piece because it has claimed them, which the paper does not explain. ORDER-STATUS and STOCK-LEVEL \
           are read by two rounds. drtm-bench chop --svg FILE draws it.",
};

fn measure(_: &Effort) -> Result<Measured, Error> {
    let program = Program::parse(programs::TPCC)
        .map_err(|error| Error::Figure { figure: "drtm-fig7", what: error.to_string() })?;
    let pieces = |options| {
        let chopping = Chopping::finest(&program, options);
        let curve = |(name, chopped): (&'static str, &drtm_chopping::Chopped)| {
            let points = vec![(None, chopped.pieces().len() as f64)];
            Curve { series: name, found: Found::Points { kind: Kind::Exact, points } }
        };
        std::iter::zip(NAMES, chopping.transactions()).map(curve).collect()
    };
    let reordered = Options { reordering: true, ..Options::NONE };
    Ok(Measured {
        curves: vec![pieces(Options::NONE), pieces(reordered), pieces(Options::ALL)],
        source: "by analysis alone".to_owned(),
        failure: None,
    })
}

/// In the program's order.
const NAMES: [&str; 5] = ["new-order", "payment", "delivery", "order-status", "stock-level"];
