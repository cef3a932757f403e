//! The newest configuration that a handle knows, and what waits for a newer one.
//!
//! Invariant: it never goes back, in whatever order configurations become known.

use parking_lot::Mutex;

use crate::{
    answer::{Answer, Promise},
    configuration::Configuration,
    error::Error,
    mutation::Mutation,
};

#[derive(Debug)]
pub(crate) struct Latest {
    state: Mutex<State>,
    fault: Option<Mutation>,
}

#[derive(Debug)]
struct State {
    known: Configuration,
    waiting: Vec<(u32, Promise<Configuration>)>,
}

impl Latest {
    pub(crate) fn new(known: Configuration, fault: Option<Mutation>) -> Self {
        Self { state: Mutex::new(State { known, waiting: Vec::new() }), fault }
    }

    pub(crate) fn known(&self) -> Configuration {
        self.state.lock().known.clone()
    }

    /// Takes note of a configuration, and answers what has waited for it. Older ones are ignored.
    pub(crate) fn publish(&self, configuration: &Configuration) {
        let mut state = self.state.lock();
        let goes_back = self.fault == Some(Mutation::WatchGoesBack);
        if configuration.number() <= state.known.number() && !goes_back {
            return;
        }
        state.known = configuration.clone();
        let is_answered = |after: u32| configuration.number() > after || goes_back;
        let answered: Vec<_> = state.waiting.extract_if(.., |(after, _)| is_answered(*after)).collect();
        drop(state);
        for (_, promise) in answered {
            promise.keep(Ok(configuration.clone()));
        }
    }

    /// Answers with the first configuration newer than `after` that is known.
    pub(crate) fn watch(&self, after: u32) -> Answer<Configuration> {
        let mut state = self.state.lock();
        if state.known.number() > after {
            return Answer::ready(Ok(state.known.clone()));
        }
        state.waiting.retain(|(_, promise)| !promise.is_unheard());
        let (answer, promise) = Answer::awaited(Error::Closed);
        state.waiting.push((after, promise));
        answer
    }

    /// Returns whether anything waits for a newer configuration.
    pub(crate) fn is_watched(&self) -> bool {
        let mut state = self.state.lock();
        state.waiting.retain(|(_, promise)| !promise.is_unheard());
        !state.waiting.is_empty()
    }

    /// Ends all that waits, with an error.
    pub(crate) fn end(&self, why: &Error) {
        let waiting = std::mem::take(&mut self.state.lock().waiting);
        for (_, promise) in waiting {
            promise.keep(Err(why.clone()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_never_goes_back_and_tells_the_newest() {
        let latest = Latest::new(Configuration::none(), None);
        let (mut first, mut third) = (latest.watch(0), latest.watch(2));
        latest.publish(&Configuration::new(2, *b"two"));
        latest.publish(&Configuration::new(1, *b"one"));
        assert_eq!(first.take(), Some(Ok(Configuration::new(2, *b"two"))));
        assert_eq!((third.take(), latest.known().number()), (None, 2));
        assert!(latest.is_watched());
        drop(third);
        assert!(!latest.is_watched(), "the answer was dropped");
        let mut last = latest.watch(2);
        latest.end(&Error::Closed);
        assert_eq!(last.take(), Some(Err(Error::Closed)));
    }

    #[test]
    fn a_watch_that_goes_back_is_seen() {
        let latest = Latest::new(Configuration::new(2, *b"two"), Some(Mutation::WatchGoesBack));
        let mut watch = latest.watch(2);
        latest.publish(&Configuration::new(1, *b"one"));
        assert_eq!(watch.take(), Some(Ok(Configuration::new(1, *b"one"))));
    }
}
