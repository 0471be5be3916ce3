//! What the tests live in: the surroundings of the program under test.

pub mod description;
pub mod ends;
pub mod forge;
pub mod github;
pub mod hub;
pub mod judge;
pub mod polled;
pub mod program;
pub mod receiver;
pub mod sim;
pub mod slowness;
pub mod tls;
