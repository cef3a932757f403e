//! Profiles of NICs and processors: every constant of the simulation's cost model, with its source.
//!
//! The sources, by the short names used below:
//!
//! - *DrTM*: "Fast In-Memory Transaction Processing Using RDMA and HTM", TOCS 2017. Section 6.4 and
//!   Fig. 3: ConnectX-3, READs to one node by five others.
//! - *DrTM+H*: "Deconstructing RDMA-enabled Distributed Transactions", OSDI 2018. Sections 3.1 and
//!   4.2, and Fig. 5: two ConnectX-4 for each of 16 nodes of 24 threads, all to all.
//! - *HADES*: "Hardware-Assisted Distributed Transactions", ISCA 2024. Table III.
//! - *IBTA*: the InfiniBand specification's packet headers.
//!
//! A value that a figure shows only as a curve is used only if its text gives the number. A
//! constant that no publication gives is marked *assumed*, with the reason for its value. Nothing
//! here was fitted to the result of a protocol or of an optimisation: the simulation must predict
//! those (`docs/decisions/0034`).

use std::time::Duration;

use super::counts::{COUNTED, Speed};

/// A published measurement of a primitive that a profile was calibrated from. Measuring it again in
/// the simulation gives the calibration's residual.
///
/// # Example
///
/// ```
/// use drtm_rdma::NicProfile;
///
/// assert!(NicProfile::CONNECTX_4.inputs.iter().all(|input| input.per_s > 0.0));
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Published {
    /// The measured primitive.
    pub primitive: Primitive,
    /// The bytes of payload.
    pub bytes: usize,
    /// The operations per second of one node.
    pub per_s: f64,
    /// The publication.
    pub source: &'static str,
}

/// A primitive whose rate was published.
///
/// # Example
///
/// ```
/// assert_eq!(drtm_rdma::Primitive::Read.to_string(), "READ");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Primitive {
    /// One-sided READs.
    Read,
    /// One-sided WRITEs.
    Write,
    /// Compare-and-swaps.
    Atomic,
    /// A message and its reply, by datagrams.
    Call,
}

impl std::fmt::Display for Primitive {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Read => "READ",
            Self::Write => "WRITE",
            Self::Atomic => "ATOMIC",
            Self::Call => "call",
        })
    }
}

/// The costs of a kind of operation at one NIC, in picoseconds of its processing unit.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Service {
    /// The cost at the requesting NIC: fetching the request, sending it, and taking the answer.
    pub(super) request: u64,
    /// The cost at the responding NIC.
    pub(super) respond: u64,
}

/// A NIC, its link, and the processor beside it.
///
/// # Example
///
/// ```
/// use drtm_rdma::NicProfile;
///
/// assert_eq!(NicProfile::named("cx3"), Some(&NicProfile::CONNECTX_3));
/// assert_eq!(NicProfile::named("infiniband"), None);
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct NicProfile {
    /// The name on command lines and in reports.
    pub name: &'static str,
    /// The nodes, the workers of each and the NICs of each in the measured cluster.
    pub cluster: (u16, usize, usize),
    /// Whether all nodes of that cluster were both clients and servers; otherwise one was the
    /// server.
    pub symmetric: bool,
    /// The measurements that it was calibrated from.
    pub inputs: &'static [Published],
    pub(super) read: Service,
    pub(super) write: Service,
    pub(super) atomic: Service,
    /// A datagram: sent, and received.
    pub(super) datagram: Service,
    /// A message on a connection: sent, and received and acknowledged.
    pub(super) message: Service,
    /// The cost of each byte of payload beyond `free_bytes`, on each of the two NICs: crossing
    /// PCIe.
    pub(super) byte: u64,
    pub(super) free_bytes: u64,
    /// The cost of each byte on the link.
    pub(super) link_byte: u64,
    /// The bytes around a payload on the link.
    pub(super) header_bytes: u64,
    /// The cost of one atomic, in the unit that serializes atomics.
    pub(super) atomic_unit: u64,
    /// The time from a doorbell until the NIC takes the request, and from a completion until the
    /// processor sees it.
    pub(super) pcie_write: u64,
    /// The time of a read across PCIe: a READ waits for it at the responder, and so does a cache
    /// miss.
    pub(super) pcie_read: u64,
    /// The time from NIC to NIC, one way: two links and a switch.
    pub(super) wire: u64,
    /// The queue pairs whose state the NIC caches.
    pub(super) cached_queue_pairs: usize,
    /// The time that a miss occupies the unit that fetches the state of queue pairs.
    pub(super) miss: u64,
    /// The bytes that travel within a request.
    pub(super) inline_bytes: usize,
    pub(super) cpu: CpuProfile,
}

/// The processor times of a worker for posting and polling, in picoseconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct CpuProfile {
    /// Writing a request.
    pub(super) post: u64,
    /// Ringing a doorbell: a write across PCIe that is not cached.
    pub(super) doorbell: u64,
    /// Taking a completion, or a reply.
    pub(super) completion: u64,
    /// Taking a message, and posting the buffer for another.
    pub(super) receive: u64,
    /// A poll that finds nothing.
    pub(super) poll: u64,
    /// A switch to a coroutine.
    pub(super) switch: u64,
    /// A lookup in a local table, for a request.
    pub(super) lookup: u64,
    /// Writing a row of a local table in its place.
    pub(super) update: u64,
    /// Inserting or removing a row of a local table.
    pub(super) insert: u64,
    /// Locking or unlocking a local record.
    pub(super) lock: u64,
    /// Comparing a local record with what was seen of it.
    pub(super) check: u64,
    /// Writing a log record that has come by message.
    pub(super) append: u64,
    /// Copying or checking 64 bytes.
    pub(super) line: u64,
}

/// The speed of that processor at protocol code. DrTM+H Table 3: 2.2 GHz. One instruction a cycle
/// is assumed: `docs/decisions/0100` says why.
const SPEED: Speed = Speed { megahertz: 2_200, in_100_cycles: 100 };

/// The processor of both clusters: Xeon E5 v3 and v4, 2.2 to 2.3 GHz.
const XEON_E5: CpuProfile = CpuProfile {
    // DrTM+H 4.2: a node of 24 threads posts 130M WRITEs a second, each with a request, a doorbell
    // and a completion: 185 ns at the most. DrTM+H 3.2 gives a doorbell "hundreds of cycles": taken
    // as 220, which is 100 ns. What is left is divided between the other two: assumed.
    post: 25_000,
    doorbell: 100_000,
    completion: 60_000,
    // DrTM+H 3.1: 79M calls a second of such a node, each with two sends and two receives: 304 ns.
    // Requests share doorbells there, 16 to one (assumed): what is left for a receive.
    receive: 121_000,
    // Assumed: two loads that hit the cache.
    poll: 20_000,
    // DrTM+H 4.1: "about 20 ns".
    switch: 20_000,
    // This store's own code, counted: 243, 295, 831, 199, 77 and 163 ns.
    lookup: SPEED.takes(COUNTED.read),
    update: SPEED.takes(COUNTED.apply),
    insert: SPEED.takes(COUNTED.place),
    lock: SPEED.takes(COUNTED.lock),
    check: SPEED.takes(COUNTED.check),
    append: SPEED.takes(COUNTED.append),
    // DrTM+H Table 3: the logging phase takes 363 cycles for 1,006 bytes and 134 for 149, which are
    // 17 for each 64 bytes.
    line: 7_800,
};

impl NicProfile {
    /// Two ConnectX-4 MCX455A for each node, 100 Gbit/s, PCIe 3.0 x16: the cluster of DrTM+H.
    pub const CONNECTX_4: Self = Self {
        name: "ConnectX-4",
        cluster: (16, 24, 2),
        symmetric: true,
        inputs: &[
            Published {
                primitive: Primitive::Read,
                bytes: 16,
                // "up to 1.6X when payload size is below 64 bytes", of 79M.
                per_s: 1.6 * 79e6,
                source: "DrTM+H 4.2, Fig. 5(a): 1.6 times two-sided below 64 bytes",
            },
            Published {
                primitive: Primitive::Read,
                bytes: 64,
                per_s: 86.9e6,
                source: "DrTM+H 4.2: raw READ at 64 bytes, 86.9M per machine",
            },
            Published {
                primitive: Primitive::Write,
                bytes: 64,
                per_s: 130e6,
                source: "DrTM+H 3.1, Fig. 5: 130M WRITEs up to 64 bytes",
            },
            Published {
                primitive: Primitive::Atomic,
                bytes: 8,
                per_s: 48e6,
                source: "DrTM+H 4.2: ATOMIC, 48M per machine",
            },
            Published {
                primitive: Primitive::Call,
                bytes: 16,
                per_s: 79e6,
                source: "DrTM+H 3.1: SEND/RECV over UD, 79M calls",
            },
        ],
        // 126M a node are 63M a NIC, which requests and responds: 15.8 ns. Half each: assumed, and
        // without effect where all nodes do both.
        read: Service { request: 7_900, respond: 7_900 },
        // 130M: 15.4 ns.
        write: Service { request: 7_700, respond: 7_700 },
        // 48M: limited by `atomic_unit`; beside it like a READ.
        atomic: Service { request: 7_900, respond: 7_900 },
        // 79M calls are limited by the processors. A NIC's share is taken as a WRITE's without its
        // acknowledgement, a quarter of it: assumed.
        datagram: Service { request: 5_800, respond: 5_800 },
        message: Service { request: 7_700, respond: 7_700 },
        // From 126M at 16 bytes to 86.9M at 64: 7.2 ns for 48 bytes, of which each NIC has a half.
        byte: 75,
        free_bytes: 16,
        // 100 Gbit/s.
        link_byte: 80,
        // IBTA: local route 8, base transport 12, extended 16, checksums 6.
        header_bytes: 42,
        // 48M a node are 24M a NIC.
        atomic_unit: 41_700,
        // HADES Table III: 2 us from NIC to NIC and back. A read across PCIe is taken as 400 ns of
        // it (assumed), the rest is two ways of 750 ns, and 100 ns between NIC and processor.
        pcie_write: 100_000,
        pcie_read: 400_000,
        wire: 750_000,
        // DrTM+H 4.2: 960 queue pairs for a NIC are more than it holds, and 16 nodes' 192 are not.
        // Between the two: assumed.
        cached_queue_pairs: 512,
        // DrTM+H 4.2, Fig. 5(b): with 960, a READ of 64 bytes is as fast as two-sided (79M a node,
        // so 25.3 ns), limited by misses. An operation finds its queue pair at both NICs, and 448
        // of 960 miss: 25.3 / (2 * 0.467) = 27.1 ns.
        miss: 27_100,
        inline_bytes: 64,
        cpu: XEON_E5,
    };

    /// A ConnectX-3 MCX353A, 56 Gbit/s, PCIe 3.0 x8, behind a switch of 40 Gbit/s: the cluster of
    /// DrTM.
    pub const CONNECTX_3: Self = Self {
        name: "ConnectX-3",
        cluster: (6, 8, 1),
        symmetric: false,
        inputs: &[
            Published {
                primitive: Primitive::Read,
                bytes: 64,
                per_s: 26.3e6,
                source: "DrTM 6.4: one-sided READ in Fig. 3, 26.3 Mops",
            },
            Published {
                primitive: Primitive::Read,
                bytes: 2048,
                // "nearly 34", in gigabits.
                per_s: 34e9 / 8.0 / 2048.0,
                source: "DrTM 2.2, Fig. 3(a): nearly 34 Gbit/s at 2 KB",
            },
        ],
        // 26.3M READs answered by one NIC: 38 ns. The five that request have each a fifth of them,
        // which is no limit; a request is taken to cost as much.
        read: Service { request: 38_000, respond: 38_000 },
        // No rate was published there: as READs (assumed).
        write: Service { request: 38_000, respond: 38_000 },
        atomic: Service { request: 38_000, respond: 38_000 },
        // DrTM+H 7: two-sided is less affected. The proportion of ConnectX-4: assumed.
        datagram: Service { request: 19_000, respond: 19_000 },
        message: Service { request: 38_000, respond: 38_000 },
        byte: 0,
        free_bytes: 64,
        // 34 Gbit/s of payload at 2 KB, where the headers are 2 %.
        link_byte: 230,
        header_bytes: 42,
        // DrTM+H 7: atomics block other operations in this generation. DrTM 7 gives one CAS 14.5 us
        // under contention and no rate; half a microsecond is assumed.
        atomic_unit: 500_000,
        pcie_write: 100_000,
        pcie_read: 400_000,
        wire: 750_000,
        // No published figure for this cluster, whose nodes have 48 at most: assumed.
        cached_queue_pairs: 256,
        miss: 100_000,
        inline_bytes: 64,
        cpu: XEON_E5,
    };

    /// All profiles.
    pub const ALL: [&'static Self; 2] = [&Self::CONNECTX_3, &Self::CONNECTX_4];

    /// Returns the profile of this name: `ConnectX-3` or `cx3`, and so on, case-insensitively.
    /// `None` if there is none.
    ///
    /// # Example
    ///
    /// See [`NicProfile`].
    #[must_use]
    pub fn named(name: &str) -> Option<&'static Self> {
        let short = |profile: &Self| profile.name.to_ascii_lowercase().replace("connectx-", "cx");
        let name = name.to_ascii_lowercase();
        Self::ALL.into_iter().find(|profile| profile.name.to_ascii_lowercase() == name || short(profile) == name)
    }

    /// The names of constants that [`varied`](Self::varied) takes.
    pub const CONSTANTS: [&'static str; 23] = [
        "read",
        "write",
        "atomic",
        "datagram",
        "message",
        "byte",
        "link-byte",
        "atomic-unit",
        "pcie-write",
        "pcie-read",
        "wire",
        "miss",
        "post",
        "doorbell",
        "completion",
        "receive",
        "poll",
        "lookup",
        "update",
        "insert",
        "lock",
        "check",
        "append",
    ];

    /// Returns the profile with one constant multiplied by a factor, to see how much a result
    /// depends on it. `None` if no constant has the name, or if the factor is negative or not
    /// finite.
    ///
    /// # Example
    ///
    /// ```
    /// use drtm_rdma::NicProfile;
    ///
    /// let slower = NicProfile::CONNECTX_4.varied("wire", 2.0).expect("a constant");
    /// assert!(slower.round_trip() > NicProfile::CONNECTX_4.round_trip());
    /// assert!(NicProfile::CONNECTX_4.varied("colour", 2.0).is_none());
    /// ```
    #[must_use]
    pub fn varied(&self, constant: &str, factor: f64) -> Option<Self> {
        let mut varied = self.clone();
        let vary = |constant: &mut u64| *constant = (*constant as f64 * factor).round() as u64;
        let vary_service =
            |service: &mut Service| [&mut service.request, &mut service.respond].into_iter().for_each(vary);
        match constant {
            _ if !factor.is_finite() || factor < 0.0 => return None,
            "read" => vary_service(&mut varied.read),
            "write" => vary_service(&mut varied.write),
            "atomic" => vary_service(&mut varied.atomic),
            "datagram" => vary_service(&mut varied.datagram),
            "message" => vary_service(&mut varied.message),
            "byte" => vary(&mut varied.byte),
            "link-byte" => vary(&mut varied.link_byte),
            "atomic-unit" => vary(&mut varied.atomic_unit),
            "pcie-write" => vary(&mut varied.pcie_write),
            "pcie-read" => vary(&mut varied.pcie_read),
            "wire" => vary(&mut varied.wire),
            "miss" => vary(&mut varied.miss),
            "post" => vary(&mut varied.cpu.post),
            "doorbell" => vary(&mut varied.cpu.doorbell),
            "completion" => vary(&mut varied.cpu.completion),
            "receive" => vary(&mut varied.cpu.receive),
            "poll" => vary(&mut varied.cpu.poll),
            "lookup" => vary(&mut varied.cpu.lookup),
            "update" => vary(&mut varied.cpu.update),
            "insert" => vary(&mut varied.cpu.insert),
            "lock" => vary(&mut varied.cpu.lock),
            "check" => vary(&mut varied.cpu.check),
            "append" => vary(&mut varied.cpu.append),
            _ => return None,
        }
        Some(varied)
    }

    /// Returns the latency of a READ of no bytes, from NIC to NIC and back, without queueing.
    ///
    /// # Example
    ///
    /// ```
    /// use drtm_rdma::NicProfile;
    ///
    /// assert!(NicProfile::CONNECTX_4.round_trip().as_nanos() >= 1_900);
    /// ```
    #[must_use]
    pub fn round_trip(&self) -> Duration {
        Duration::from_nanos((2 * self.wire + self.pcie_read + 2 * self.read.request) / 1_000)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_constant_that_has_a_name_varies_alone() {
        let plain = NicProfile::CONNECTX_4;
        let mut seen = Vec::new();
        for constant in NicProfile::CONSTANTS {
            let varied = plain.varied(constant, 3.0).expect(constant);
            assert_ne!(varied, plain, "{constant}");
            assert_eq!(plain.varied(constant, 1.0).as_ref(), Some(&plain), "{constant}");
            assert!(!seen.contains(&varied), "{constant}");
            seen.push(varied);
        }
        assert_eq!([-1.0, f64::NAN, f64::INFINITY].map(|factor| plain.varied("wire", factor)), [const { None }; 3]);
    }

    #[test]
    fn profiles_have_names_of_their_own() {
        for profile in NicProfile::ALL {
            assert_eq!(NicProfile::named(profile.name), Some(profile));
        }
        assert_eq!(NicProfile::named("CX4"), Some(&NicProfile::CONNECTX_4));
        assert_eq!(NicProfile::named(""), None);
    }
}
