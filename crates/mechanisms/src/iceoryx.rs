//! Where iceoryx2 keeps its things: [`Room`].
//!
//! A room is a root folder and a prefix in `/dev/shm` of its own, named after its maker; they go
//! with it, and those of killed processes go at the next start.

use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use iceoryx2::prelude::*;
use tontine_host::leftovers::{self, Folder, MEMORY, SHARED_MEMORY, remove_all};
use tontine_host::trouble::{During, Result, Trouble};

/// How long two ends may take to find each other.
pub const PATIENCE: Duration = Duration::from_secs(10);

/// A place for services that nobody else has; emptied when dropped in the process that made it.
#[derive(Debug)]
pub struct Room {
    config: Config,
    prefix: String,
    folder: Folder,
}

impl Room {
    /// Makes one.
    ///
    /// # Errors
    /// Skipped, where there is no `/dev/shm` or no temporary folder.
    pub fn new() -> Result<Self> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        std::fs::metadata(SHARED_MEMORY)
            .setting_up("stat of /dev/shm, where iceoryx2 keeps its data")?;
        set_log_level(LogLevel::Fatal);
        let folder = Folder::new("ice")?;
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let prefix = format!("{MEMORY}{}_{number}_", leftovers::maker());
        let mut config = Config::default();
        let path = folder.path().as_os_str().as_encoded_bytes();
        let path = iceoryx2::prelude::Path::new(path).map_err(failed("root folder"))?;
        config.global.set_root_path(&path);
        config.global.prefix = FileName::new(prefix.as_bytes()).map_err(failed("prefix"))?;
        Ok(Self { config, prefix, folder })
    }

    /// A node in it. After the fork of whoever shall own it.
    ///
    /// # Errors
    /// Skipped, where it cannot be created.
    pub fn node(&self) -> Result<Node<ipc::Service>> {
        NodeBuilder::new()
            .config(&self.config)
            .signal_handling_mode(SignalHandlingMode::Disabled)
            .create::<ipc::Service>()
            .map_err(refused("creating a node"))
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        if self.folder.is_ours() {
            remove_all(Path::new(SHARED_MEMORY), &self.prefix);
        }
    }
}

/// What an error says that is not the machine's.
pub fn failed<E: std::fmt::Debug>(what: &'static str) -> impl Fn(E) -> Trouble {
    move |error| Trouble::fail(format!("iceoryx2, {what}: {error:?}"))
}

/// For what is created: iceoryx2 does not give the errno, and what usually stands in the way there
/// is the machine's (no descriptors, no space or no permission in `/dev/shm` or the folder).
pub fn refused<E: std::fmt::Debug>(what: &'static str) -> impl Fn(E) -> Trouble {
    move |error| Trouble::skip(format!("iceoryx2, {what}: {error:?}"))
}
