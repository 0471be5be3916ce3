//! What is on disk.
#![forbid(unsafe_code)]

pub mod run_info;
