//! The random numbers that Linux's queue drew, for ours.

use std::cell::RefCell;
use std::rc::Rc;

use sqm_core::rng::Random;

use super::super::file::{self, Draws};

/// The recorded numbers. The queue draws them, and the subject holds a second handle to see which are left.
#[derive(Clone)]
pub(super) struct Recorded(Rc<RefCell<Lists>>);

impl Recorded {
    pub(super) fn new(random: &file::Random) -> Self {
        Self(Rc::new(RefCell::new(Lists {
            r16: List::new(&random.r16),
            r32: List::new(&random.r32),
        })))
    }

    /// A message if recorded numbers are left, or more were drawn than are recorded.
    pub(super) fn complaint(&self) -> Option<String> {
        let lists = self.0.borrow();
        let of = |width, list: Option<String>| list.map(|list| format!("{list} {width} random numbers"));
        of("16-bit", lists.r16.complaint()).or_else(|| of("32-bit", lists.r32.complaint()))
    }
}

struct Lists {
    r16: List<u16>,
    r32: List<u32>,
}

struct List<N> {
    draws: Draws<N>,
    /// The number of numbers drawn.
    drawn: usize,
}

impl<N: Copy + Default> List<N> {
    fn new(draws: &Draws<N>) -> Self
    where
        N: Clone,
    {
        Self {
            draws: draws.clone(),
            drawn: 0,
        }
    }

    /// The next number; beyond the end of the list any will do, because the scenario has failed.
    fn draw(&mut self) -> N {
        self.drawn += 1;
        match &self.draws {
            Draws::Always(number) => *number,
            Draws::InOrder(list) => list.get(self.drawn - 1).copied().unwrap_or_default(),
        }
    }

    fn complaint(&self) -> Option<String> {
        let Draws::InOrder(list) = &self.draws else {
            return None;
        };
        (list.len() != self.drawn).then(|| format!("it drew {} of {}", self.drawn, list.len()))
    }
}

impl Random for Recorded {
    fn r16(&mut self) -> u16 {
        self.0.borrow_mut().r16.draw()
    }

    fn r32(&mut self) -> u32 {
        self.0.borrow_mut().r32.draw()
    }
}
