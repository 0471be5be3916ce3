//! What the user wrote: read, checked, and handed on as plain values.
#![forbid(unsafe_code)]

pub mod checked;
