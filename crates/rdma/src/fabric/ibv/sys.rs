//! Owned handles of libibverbs: everything of this fabric that is unsafe.
//!
//! Three invariants carry all of it.
//!
//! - *A handle is valid as long as its value.* Each is made by its constructor, which checks for
//!   null, and freed by `Drop` alone. What the library wants to outlive it, it holds by an `Arc`.
//! - *A NIC touches registered memory only*, whatever a request says: it checks each access against
//!   the protection domain. So a wrong span is an error completion. Memory is freed after its
//!   registration is ended, never before.
//! - *The library's objects may be used by any thread*, as its manual says.

mod address;
mod completions;
mod device;
mod memory;
mod pair;
mod requests;

pub(super) use address::{Address, Exit};
pub(super) use completions::{Completion, CompletionQueue};
pub(super) use device::{Abilities, Device, PortState};
pub(super) use memory::{Registration, Slab};
pub(super) use pair::{End, QueuePair, Shape, SharedReceives};
pub(super) use requests::{Action, Requests};

use std::{ffi::c_int, fmt, io};

use super::VerbsError;

/// Returns the error of the library's last call.
fn system(what: &'static str) -> VerbsError {
    VerbsError::System { what, source: io::Error::last_os_error() }
}

/// Calls that give an error number, or its negative.
fn check(what: &'static str, code: c_int) -> Result<(), VerbsError> {
    match code {
        0 => Ok(()),
        // Some give -1, and put the number elsewhere.
        -1 => Err(system(what)),
        code => Err(VerbsError::System { what, source: io::Error::from_raw_os_error(code.abs()) }),
    }
}

macro_rules! opaque {
    ($($name:ident),+) => {
        $(impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(concat!(stringify!($name), "(..)"))
            }
        })+
    };
}
opaque!(Device, Registration, Slab, CompletionQueue, SharedReceives, Address, QueuePair, Requests);
