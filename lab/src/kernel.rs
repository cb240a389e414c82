//! The kernels that the lab can boot.

use std::path::{Path, PathBuf};

use crate::Error;

/// How time passes in the lab.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Clock {
    /// Real time, with the kernel of Debian's package `user-mode-linux`. For people who watch, and to measure CPU cost.
    Wall,
    /// Virtual time: computing takes no time, and waiting is skipped, so that results do not depend on the load of the machine.
    /// Needs the kernel that `make lab-kernel` builds.
    Virtual,
}

impl Clock {
    /// The path of the kernel. The error says how to install it.
    pub fn kernel(self) -> Result<PathBuf, Error> {
        let (path, remedy) = match self {
            Self::Wall => (
                PathBuf::from(std::env::var_os("SQM_LAB_KERNEL").unwrap_or_else(|| DEBIAN_KERNEL.into())),
                "install the Debian package user-mode-linux (apt-get install user-mode-linux)",
            ),
            Self::Virtual => (
                cache_dir().join("linux-virtual-time"),
                "build it once with 'make lab-kernel'",
            ),
        };
        if path.is_file() {
            return Ok(path);
        }
        Err(Error::Missing {
            what: format!("the lab's kernel {}", path.display()),
            remedy: remedy.into(),
        })
    }

    /// True if it boots Debian's binary, which does not preserve all registers of newer processors.
    pub(crate) fn is_debians(self) -> bool {
        self.kernel()
            .is_ok_and(|kernel| kernel == Path::new(DEBIAN_KERNEL))
    }
}

const DEBIAN_KERNEL: &str = "/usr/bin/linux.uml";

/// The folder of the kernel that `make lab-kernel` builds: `SQM_LAB_CACHE`, else `sqm/lab` in the user's cache folder.
fn cache_dir() -> PathBuf {
    let from_env = |name| {
        std::env::var_os(name)
            .filter(|v| !v.is_empty())
            .map(PathBuf::from)
    };
    from_env("SQM_LAB_CACHE").unwrap_or_else(|| {
        from_env("XDG_CACHE_HOME")
            .or_else(|| from_env("HOME").map(|home| home.join(".cache")))
            .unwrap_or_else(|| "/var/cache".into())
            .join("sqm/lab")
    })
}
