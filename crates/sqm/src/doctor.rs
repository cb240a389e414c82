//! What is wrong with a set-up, how one sees that, and what to do: `sqm doctor`.
//!
//! [`collect`] looks at the machine, [`processors`] at what keeps it busy, and both write down [`facts`]; [`findings`] judges them and
//! touches nothing, so that facts recorded elsewhere can be judged too; [`fix`] changes what can be changed safely.

pub(crate) mod collect;
pub(crate) mod facts;
pub(crate) mod findings;
pub(crate) mod fix;
mod processors;
