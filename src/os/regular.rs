//! Opening a file to read without ever waiting for anyone.

use std::fs::{File, Metadata, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// Opens a regular file for reading, following symlinks. A FIFO without a
/// writer, which would hang a plain open, is refused like everything else that
/// is not a regular file.
///
/// # Errors
/// What `open` or `fstat` said; [`io::ErrorKind::InvalidInput`] for anything
/// but a regular file.
#[expect(
    clippy::disallowed_methods,
    reason = "opens for reading, with a flag that is libc's"
)]
pub fn open_regular(path: &Path) -> io::Result<(File, Metadata)> {
    let file = OpenOptions::new()
        .read(true)
        .custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY)
        .open(path)?;
    let metadata = file.metadata()?;
    if metadata.is_file() {
        Ok((file, metadata))
    } else {
        Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            "not a regular file",
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_regular_files_are_opened() {
        assert!(open_regular(Path::new("Cargo.toml")).is_ok());
        for other in ["src", "/dev/null"] {
            let error = open_regular(Path::new(other)).expect_err("not a regular file");
            assert_eq!(error.kind(), io::ErrorKind::InvalidInput, "{other}");
        }
        let error = open_regular(Path::new("no such file")).expect_err("missing");
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
    }
}
