//! Tracing what serde describes: the shape of a type, found by deserializing it from nothing.
//!
//! [`describe`] runs the type's `Deserialize` over a deserializer that has no bytes. Each request
//! is recorded as a node of a [`Graph`](graph::Graph), and answered with a made-up value. One run
//! sees one variant of each enum, and one side of each option. So the type is deserialized again
//! until every variant, and the inside of each option, sequence and map, has been seen. The answer
//! at each such choice leads to what has not been seen; within itself, a recursive type gets a
//! variant that is known to end.
//!
//! A type whose own code refuses the made-up values is seen up to there: the rest is a `?` in the
//! description, which begins with the type's name then. Memory and time are bounded.
//!
//! # The notation
//!
//! ```text
//! u32 bool string bytes ()     what serde calls them
//! (u8,string) (u8*32)          a tuple; several equal parts, such as an array
//! [T]  {K:V}  T?               a sequence, a map, an option
//! User{name:string,age:u32}    a struct; also Pair(u8,u8), Meters(f64), Unit()
//! Kind<None|One(i64)|Two{a:u8,b:u8}>
//!                              an enum
//! ^User                        a named type that stands in the text already
//! ^2                           an unnamed type, two levels further out
//! ?                            what could not be seen
//! ```
//!
//! Two types of one name are `Kind` and `Kind'2`. A name that is no identifier is in quotes.

mod deserializer;
mod graph;
mod text;

use std::{
    cell::RefCell,
    panic::{AssertUnwindSafe, catch_unwind},
};

use serde::de::DeserializeOwned;

use self::{
    deserializer::Tracer,
    graph::{Graph, Slot},
};
use super::describe::name_of;

/// The most times that a type is deserialized.
const MOST_PASSES: usize = 20_000;

/// Describes the shape of a type.
pub(super) fn describe<T: DeserializeOwned>() -> String {
    let (graph, mut is_accepted) = (RefCell::new(Graph::default()), false);
    for _ in 0..MOST_PASSES {
        graph.borrow_mut().begin_pass();
        let tracer = Tracer::new(&graph, Slot::ROOT);
        // Nothing of a pass is used but the graph. A panic of the type's own code ends the trace,
        // so that it reaches the panic hook only once.
        let done = catch_unwind(AssertUnwindSafe(|| T::deserialize(tracer).is_ok()));
        is_accepted = done.as_ref().is_ok_and(|done| *done);
        if done.is_err() || !graph.borrow_mut().end_pass(is_accepted) {
            break;
        }
    }
    let graph = graph.borrow();
    let text = text::of(&graph);
    if is_accepted && graph.is_whole() { text } else { format!("{} as {text}", name_of::<T>()) }
}

#[cfg(test)]
mod tests;
