//! What the tests live in.

pub mod sim;
//! The helpers of the suite: what surrounds the program under test.

pub mod forge;
pub mod github;
