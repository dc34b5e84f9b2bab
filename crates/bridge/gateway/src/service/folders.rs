//! Folders of the sockets that a gateway binds: [`create`].
//!
//! Only [`BASE`], if root starts the gateway without a service manager, and folders below it are
//! created. Any other missing folder is an error, because the gateway would have to guess who may
//! use it.

use std::fs::{self, DirBuilder, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Component, Path};

use super::ServiceError;
use crate::config::Config;

/// The folder below which folders are created. The service manager makes it for the gateway.
const BASE: &str = "/run/tontine";

/// Mode of the created folders: every program may reach the sockets, whose own modes decide who may
/// send.
const MODE: u32 = 0o755;

/// Creates the missing folders of the status socket and of the imports.
pub(super) fn create(config: &Config) -> Result<(), ServiceError> {
    create_for(Path::new(BASE), &config.status)?;
    for import in &config.imports {
        // An abstract name needs no folder. A path is absolute, so it does not begin with `@`.
        let address = import.address.to_string();
        if !address.starts_with('@') {
            create_for(Path::new(BASE), Path::new(&address))?;
        }
    }
    Ok(())
}

/// Creates the folders of one socket that are missing below `base`.
fn create_for(base: &Path, socket: &Path) -> Result<(), ServiceError> {
    let Some(folder) = socket.parent() else { return Ok(()) };
    if folder.is_dir() {
        return Ok(());
    }
    let missing = |folder: &Path| ServiceError::NoFolder {
        folder: folder.to_owned(),
        socket: socket.to_owned(),
    };
    let Ok(inside) = folder.strip_prefix(base) else { return Err(missing(folder)) };
    if !inside.components().all(|part| matches!(part, Component::Normal(_))) {
        return Err(missing(folder));
    }
    if !base.is_dir() && create_base(base).is_err() && !base.is_dir() {
        return Err(missing(base));
    }
    let mut path = base.to_owned();
    for part in inside.components() {
        path.push(part);
        match DirBuilder::new().mode(MODE).create(&path) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                return Err(ServiceError::Folder { folder: path, error });
            }
            _ => {}
        }
    }
    // Something else than a folder has one of the names.
    if folder.is_dir() { Ok(()) } else { Err(missing(folder)) }
}

/// Creates `base`, whose parent exists and belongs to root, with its mode whatever the umask.
fn create_base(base: &Path) -> io::Result<()> {
    DirBuilder::new().mode(MODE).create(base)?;
    fs::set_permissions(base, Permissions::from_mode(MODE))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base_and_folders_below_it_are_created() {
        let folder = tempfile::tempdir().expect("a folder");
        let base = folder.path().join("tontine");
        for _ in 0..2 {
            create_for(&base, &base.join("hostB/x/jobs")).expect("created");
        }
        let mode = fs::metadata(&base).expect("the base").permissions().mode();
        assert_eq!(mode & 0o777, MODE, "{mode:o}");
        let mode = fs::metadata(base.join("hostB/x")).expect("a folder").permissions().mode();
        assert_eq!(mode & 0o022, 0, "{mode:o}");
        assert!(!base.join("hostB/x/jobs").exists());
        create_for(&base, &folder.path().join("jobs")).expect("the folder exists");
    }

    #[test]
    fn other_missing_folders_are_named() {
        let folder = tempfile::tempdir().expect("a folder");
        let base = folder.path().join("run/tontine");
        let error = create_for(&base, &base.join("hostB/jobs")).expect_err("no run").to_string();
        assert!(error.contains(&format!("needs the folder {},", base.display())), "{error}");
        let command = format!("sudo install -d -o \"$USER\" {}", base.display());
        assert!(error.ends_with(&command), "{error}");
        fs::create_dir_all(&base).expect("created");
        for inside in ["../other/jobs", "a/../../other/jobs"] {
            let error = create_for(&base, &base.join(inside)).expect_err("not below the base");
            assert!(error.to_string().contains("which does not exist"), "{error}");
            assert!(!folder.path().join("run/other").exists() && !base.join("a").exists());
        }
        fs::write(base.join("file"), "").expect("written");
        let error = create_for(&base, &base.join("file/jobs")).expect_err("a file").to_string();
        assert!(error.contains("file, which does not exist"), "{error}");
        let error = create_for(&base, Path::new("/no/such/jobs")).expect_err("missing").to_string();
        assert!(error.starts_with("/no/such/jobs needs the folder /no/such, "), "{error}");
    }
}
