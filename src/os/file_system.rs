//! What kind of file system a file is on, as `fstatfs` says.
//!
//! Two things follow from it. A file system on a network is seen by other
//! machines, where no pid of ours means anything. And on NFS a call of `flock`
//! may hang where no signal reaches it, when the server's lock manager does not
//! answer, although the call was told not to wait; so there it is never made.

use super::check;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, BorrowedFd};

/// A kind of file system.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileSystem {
    /// One of this machine, or one nobody here knows.
    Local,
    /// One that other machines can have mounted too.
    Network {
        /// What people call it.
        name: &'static str,
        /// Whether `flock` can hang there and so is not even tried.
        flock_may_hang: bool,
    },
    /// A program's own: it may be local or on a network, and does not tell.
    Fuse,
}

/// What `f_type` says of file systems on a network: from `linux/magic.h`, where
/// it has them, else from statfs(2) (Lustre's and GPFS's own modules, GFS2's
/// `linux/gfs2_ondisk.h`).
const ON_A_NETWORK: [(u32, &str); 14] = [
    (NFS, "NFS"),
    (0x517B, "SMB"),
    (0xFF53_4D42, "CIFS"),
    (0xFE53_4D42, "SMB2"),
    (0x5346_414F, "AFS"),
    (0x6B41_4653, "AFS"),
    (0x7375_7245, "Coda"),
    (0x00C3_6400, "Ceph"),
    (0x0102_1997, "9P"),
    (0x0BD0_0BD0, "Lustre"),
    (0x4750_4653, "GPFS"),
    (0x7461_636F, "OCFS2"),
    (0x0116_1970, "GFS2"),
    (0x564C, "NCP"),
];

const NFS: u32 = 0x6969;
const FUSE: u32 = 0x6573_5546;

impl FileSystem {
    /// The one that an open file or directory is on.
    ///
    /// # Errors
    /// What `fstatfs` reports; where a sandbox does not let it ask, that is no
    /// error but [`FileSystem::Local`].
    pub fn of(file: BorrowedFd<'_>) -> io::Result<FileSystem> {
        let mut found = MaybeUninit::<libc::statfs>::zeroed();
        // SAFETY: `file` is open while borrowed, and `found` is writable memory of the
        // size the kernel fills.
        match check(unsafe { libc::fstatfs(file.as_raw_fd(), found.as_mut_ptr()) }) {
            Ok(_) => {}
            Err(e) if matches!(e.raw_os_error(), Some(libc::ENOSYS | libc::EPERM)) => {
                return Ok(FileSystem::Local);
            }
            Err(e) => return Err(e),
        }
        // SAFETY: all of it was zeroed, and zero is valid for each of its integers.
        let found = unsafe { found.assume_init() };
        // The numbers have 32 bits, whatever the field is wide and however signed.
        Ok(FileSystem::from_magic(found.f_type as u32))
    }

    fn from_magic(magic: u32) -> FileSystem {
        match ON_A_NETWORK.iter().find(|(number, _)| *number == magic) {
            Some((_, name)) => FileSystem::Network {
                name,
                flock_may_hang: magic == NFS,
            },
            None if magic == FUSE => FileSystem::Fuse,
            None => FileSystem::Local,
        }
    }

    /// Whether `flock` can hang there.
    #[must_use]
    pub fn flock_may_hang(self) -> bool {
        matches!(
            self,
            FileSystem::Network {
                flock_may_hang: true,
                ..
            }
        )
    }

    /// What it is if other machines may have it too: `NFS, a network file system`.
    #[must_use]
    pub fn shared_in_words(self) -> Option<String> {
        match self {
            FileSystem::Local => None,
            FileSystem::Network { name, .. } => Some(format!("{name}, a network file system")),
            FileSystem::Fuse => Some("FUSE, which may be a network file system".to_string()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;
    use std::os::fd::AsFd;

    #[test]
    fn what_is_on_a_network_is_told_from_what_is_not() {
        let proc = File::open("/proc").expect("it is mounted");
        let kind = FileSystem::of(proc.as_fd()).expect("fstatfs works");
        assert_eq!(kind, FileSystem::Local);
        assert_eq!(kind.shared_in_words(), None);
        let nfs = FileSystem::from_magic(0x6969);
        assert!(nfs.flock_may_hang());
        assert_eq!(
            nfs.shared_in_words().as_deref(),
            Some("NFS, a network file system")
        );
        for magic in [0xFF53_4D42, 0x00C3_6400, 0x0BD0_0BD0] {
            let kind = FileSystem::from_magic(magic);
            assert!(!kind.flock_may_hang(), "{kind:?}");
            assert!(kind.shared_in_words().is_some(), "{kind:?}");
        }
        assert!(FileSystem::from_magic(FUSE).shared_in_words().is_some());
        // ext4, XFS, tmpfs, overlay.
        for magic in [0xEF53, 0x5846_5342, 0x0102_1994, 0x794C_7630] {
            assert_eq!(FileSystem::from_magic(magic), FileSystem::Local);
        }
    }
}
