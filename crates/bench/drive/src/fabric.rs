//! What the command line calls fabrics.

use std::{fmt, str::FromStr};

use drtm_rdma::NicProfile;
use serde::{Serialize, Serializer};

/// A fabric.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum FabricName {
    /// Nodes within this process.
    Local,
    /// Nodes that share memory, each with a mapping of its own.
    Shm,
    /// Nodes that are connected by TCP, over the loopback.
    Tcp,
    /// Those without encryption, for comparison.
    TcpClear,
    /// Nodes that are connected by an RDMA NIC, which may be software.
    #[cfg(feature = "verbs")]
    Verbs,
    /// A simulated cluster with this NIC.
    Sim(&'static NicProfile),
}

impl FabricName {
    /// Returns whether nothing on this fabric is measured.
    pub fn is_simulated(self) -> bool {
        matches!(self, Self::Sim(_))
    }
}

impl fmt::Display for FabricName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Local => f.write_str("local"),
            Self::Shm => f.write_str("shm"),
            Self::Tcp => f.write_str("tcp"),
            Self::TcpClear => f.write_str("tcp-clear"),
            #[cfg(feature = "verbs")]
            Self::Verbs => f.write_str("verbs"),
            Self::Sim(profile) => write!(f, "sim:{} (simulated)", profile.name),
        }
    }
}

impl Serialize for FabricName {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Sim(profile) => serializer.collect_str(&format_args!("sim:{}", profile.name)),
            other => serializer.collect_str(other),
        }
    }
}

impl FromStr for FabricName {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let profiles = || NicProfile::ALL.map(|profile| format!("sim:{}", profile.name)).join(", ");
        match text {
            "local" => Ok(Self::Local),
            "shm" => Ok(Self::Shm),
            "tcp" => Ok(Self::Tcp),
            "tcp-clear" => Ok(Self::TcpClear),
            #[cfg(feature = "verbs")]
            "verbs" => Ok(Self::Verbs),
            #[cfg(not(feature = "verbs"))]
            "verbs" => Err("this program was built without RDMA NICs: build it with `--features verbs`, for which \
                            docs/cluster.md says what is needed"
                .to_owned()),
            "sim" => Ok(Self::Sim(&NicProfile::CONNECTX_4)),
            _ => {
                let profile = text.strip_prefix("sim:").and_then(NicProfile::named);
                profile
                    .map(Self::Sim)
                    .ok_or_else(|| format!("one of local, shm, tcp, tcp-clear, verbs, {}", profiles()))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fabrics_are_read_as_they_are_written() {
        for name in ["local", "shm", "tcp", "tcp-clear", "sim:ConnectX-3", "sim:ConnectX-4"] {
            let fabric: FabricName = name.parse().expect("a fabric");
            assert_eq!(serde_json::to_value(fabric).expect("a value"), name);
            assert_eq!(fabric.to_string().contains("simulated"), fabric.is_simulated());
        }
        let verbs = "verbs".parse::<FabricName>();
        assert!(cfg!(feature = "verbs") == verbs.is_ok());
        assert!(verbs.is_ok_and(|name| name.to_string() == "verbs") || !cfg!(feature = "verbs"));
        assert!("sim:abacus".parse::<FabricName>().is_err_and(|refusal| refusal.contains("ConnectX-3")));
    }
}
