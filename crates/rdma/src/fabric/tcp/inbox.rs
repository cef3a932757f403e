//! Where messages to a node are delivered: its mailbox, and the endpoints that receive from it.

use std::sync::Arc;

use crate::{
    fabric::{
        mailbox::Mailbox,
        places::{self, Places, Tenancy},
    },
    sync::alarm::Ring,
};

use super::bell::Bell;

/// The mailbox of a node, and its endpoints.
#[derive(Debug)]
pub(crate) struct Inbox {
    pub(crate) mail: Mailbox,
    pub(crate) places: Places<Place>,
}

/// What others know of an endpoint of this node.
#[derive(Debug)]
pub(crate) struct Place {
    pub(super) bell: Arc<Bell>,
    pub(super) tenancy: Tenancy,
}

impl Ring for Place {
    fn ring(&self) {
        self.bell.ring();
    }
}

impl places::Place for Place {
    fn tenancy(&self) -> &Tenancy {
        &self.tenancy
    }

    fn rouse(&self) -> bool {
        self.bell.rouse()
    }
}
