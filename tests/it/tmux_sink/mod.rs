//! The `tmux` sink, with the real program and real tmux servers, each at a socket of its own.

mod agents;
mod hostile;
mod receipts;
mod sessions;
pub mod world;
