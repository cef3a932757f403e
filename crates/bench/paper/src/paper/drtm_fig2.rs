//! DrTM, Fig. 2: sequential against random access.

use drtm_htm::{LINE_BYTES, Profile};
use drtm_report::units::sizes;

use super::{
    dbx_fig1::{ABORT_RATE, WORKING_SET, in_sequence},
    panel::{Panel, Published, Study},
    regions::{Line, Regions, line},
};
use crate::{
    Error,
    htm::{Load, Order, Setup},
};

pub(super) const STUDIES: &[Study] = &[
    Study {
        panels: &[A],
        measure: |effort| Regions { profile: Profile::L1_32K_8, threads: 1, measure: in_sequence }.measure(effort),
    },
    Study {
        panels: &[B],
        measure: |effort| Regions { profile: Profile::L1_32K_8, threads: 1, measure: at_random }.measure(effort),
    },
];

const A: Panel = Panel {
    name: "drtm-fig2a",
    title: "DrTM Fig. 2a: abort rate against working set, in sequence",
    x: Some(WORKING_SET),
    y: ABORT_RATE,
    // The text gives no rates here, only that they rise drastically beyond 32 KB of writes.
    published: &[],
    note: "Model: as in DBX Fig. 1a: writes end with the sets and ways of the cache, reads with the tracker. The paper's \
            text gives the 32 KB and no rates.",
};

const B: Panel = Panel {
    name: "drtm-fig2b",
    title: "DrTM Fig. 2b: abort rate against working set, at random",
    x: Some(WORKING_SET),
    y: ABORT_RATE,
    published: &[Published::at("write", 768, 1.0)],
    note: "Model: distinct lines of 64 MB, drawn again for every region; a write aborts when its set of the \
           cache is full of written lines. The published value cannot come from sets and ways: it is 12 lines \
           among 64 sets of 8 ways, and nine of them in one set is next to impossible. Random writes on that \
           machine had another limit, which is not in a model of the cache.",
};

fn at_random(setup: Setup) -> Result<Vec<Line>, Error> {
    const WRITES: [usize; 19] =
        sizes([1, 2, 4, 8, 12, 16, 32, 64, 96, 128, 144, 160, 192, 224, 256, 288, 320, 384, 512], LINE_BYTES);
    const READS: [usize; 12] = sizes([1, 4, 16, 64, 256, 1024, 4096, 16384, 32768, 65536, 69632, 131072], LINE_BYTES);
    let setup = Setup { order: Order::Random, ..setup };
    Ok(vec![line("write", setup, &WRITES, Load::write)?, line("read", setup, &READS, Load::read)?])
}
