//! What the tests live in.

pub mod sim;
