//! The bytes of a view, and its name in messages.

use std::fmt;

use drtm_rdma::{
    Incarnation, NodeId,
    rpc::{Decode, DecodeError, Encode, Reader},
};

use super::{ClusterError, Lost, Member, Placement, View, bad};

/// The format of notes.
const FORMAT: u32 = 1;

impl fmt::Display for View {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let nodes = self.members.iter().map(|member| member.node).collect::<Vec<_>>();
        write!(f, "view {} of {nodes:?} with {} shards", self.number, self.placements.len())
    }
}

impl View {
    /// Returns the view as a directory notes it.
    pub(in crate::cluster) fn to_note(&self) -> Vec<u8> {
        let mut bytes = FORMAT.to_le_bytes().to_vec();
        self.encode(&mut bytes);
        bytes
    }

    /// Returns the view that a directory has noted, of a cluster of which this is the first view.
    ///
    /// # Errors
    ///
    /// [`ClusterError::BadView`] if it is not a view of such a cluster. The directory's rows are
    /// another's, too, or this program does not know what they are worth: the node must not say
    /// that nothing is noted.
    pub(in crate::cluster) fn of_note(&self, note: &[u8]) -> Result<Self, ClusterError> {
        let view = match note.split_first_chunk() {
            Some((format, view)) if *format == FORMAT.to_le_bytes() => Self::decode(&mut Reader::new(view)).ok(),
            _ => None,
        };
        let is_of_cluster = |view: &Self| view.is_of_shape(self);
        view.filter(is_of_cluster).ok_or_else(|| bad("what the directory has noted is not a view of this cluster"))
    }
}

impl Encode for View {
    fn encode(&self, into: &mut Vec<u8>) {
        (self.number, self.groups, self.members.len() as u16, self.placements.len() as u16).encode(into);
        for Member { node, address, incarnation } in &self.members {
            (node.0, &**address, incarnation.map(|incarnation| u64::from(incarnation.0))).encode(into);
        }
        (self.replaced.len() as u16).encode(into);
        for (node, address) in &self.replaced {
            (node.0, &*address.to_string()).encode(into);
        }
        for Placement { primary, backups, learners, lost } in &self.placements {
            let lost = lost.map(|lost| match lost {
                Lost::GivenUp => 0,
                Lost::Held(life) => 1 + u64::from(life.0),
            });
            (primary.0, backups.len() as u16, learners.len() as u16, lost).encode(into);
            backups.iter().chain(learners).for_each(|node| node.0.encode(into));
        }
    }
}

impl<'a> Decode<'a> for View {
    fn decode(from: &mut Reader<'a>) -> Result<Self, DecodeError> {
        let invalid = DecodeError::Invalid { what: "view" };
        let (number, groups, members, shards): (u32, u16, u16, u16) = Decode::decode(from)?;
        let member = |_| {
            let (node, address, incarnation): (u16, &str, Option<u64>) = Decode::decode(from)?;
            let number = |incarnation| u32::try_from(incarnation).map_err(|_| invalid);
            let incarnation = incarnation.map(number).transpose()?.map(Incarnation);
            Ok(Member { node: NodeId(node), address: address.to_owned(), incarnation })
        };
        let members = (0..members).map(member).collect::<Result<_, DecodeError>>()?;
        let count = u16::decode(from)?;
        let replaced = |_| {
            let (node, address): (u16, &str) = Decode::decode(from)?;
            Ok((NodeId(node), address.parse().map_err(|_| invalid)?))
        };
        let replaced = (0..count).map(replaced).collect::<Result<_, DecodeError>>()?;
        let placement = |_| {
            let (primary, backups, learners, lost): (u16, u16, u16, Option<u64>) = Decode::decode(from)?;
            let held = |life| u32::try_from(life).map(|life| Lost::Held(Incarnation(life))).map_err(|_| invalid);
            let lost = lost.map(|lost| lost.checked_sub(1).map_or(Ok(Lost::GivenUp), held)).transpose()?;
            let mut nodes = |count| (0..count).map(|_| u16::decode(from).map(NodeId)).collect::<Result<_, _>>();
            Ok(Placement { primary: NodeId(primary), backups: nodes(backups)?, learners: nodes(learners)?, lost })
        };
        let placements = (0..shards).map(placement).collect::<Result<_, DecodeError>>()?;
        let view = Self::new(number, members, placements, groups).map_err(|_| invalid)?;
        Ok(Self { replaced, ..view })
    }
}
