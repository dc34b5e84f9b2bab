//! Folders of the sockets that a gateway binds: [`create`].
//!
//! Only folders below [`BASE`], which the service manager makes for the gateway, are created. Any
//! other missing folder is an error, because the gateway would have to guess who may use it.

use std::fs::DirBuilder;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Component, Path};

use super::ServiceError;
use crate::config::Config;

/// The folder below which folders are created.
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
    let inside = match folder.strip_prefix(base) {
        Ok(inside) if base.is_dir() => inside,
        Ok(_) => return Err(missing(base)),
        Err(_) => return Err(missing(folder)),
    };
    if !inside.components().all(|part| matches!(part, Component::Normal(_))) {
        return Err(missing(folder));
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

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn folders_below_the_base_are_created() {
        let folder = tempfile::tempdir().expect("a folder");
        let base = folder.path().join("tontine");
        fs::create_dir(&base).expect("created");
        for _ in 0..2 {
            create_for(&base, &base.join("hostB/x/jobs")).expect("created");
        }
        let mode = fs::metadata(base.join("hostB/x")).expect("a folder").permissions().mode();
        assert_eq!(mode & 0o022, 0, "{mode:o}");
        assert!(!base.join("hostB/x/jobs").exists());
        create_for(&base, &folder.path().join("jobs")).expect("the folder exists");
    }

    #[test]
    fn other_missing_folders_are_named() {
        let folder = tempfile::tempdir().expect("a folder");
        let base = folder.path().join("tontine");
        let error = create_for(&base, &base.join("hostB/jobs")).expect_err("no base").to_string();
        assert!(error.contains(&format!("needs the folder {},", base.display())), "{error}");
        fs::create_dir(&base).expect("created");
        for inside in ["../other/jobs", "a/../../other/jobs"] {
            let error = create_for(&base, &base.join(inside)).expect_err("not below the base");
            assert!(error.to_string().contains("which does not exist"), "{error}");
            assert!(!folder.path().join("other").exists() && !base.join("a").exists());
        }
        fs::write(base.join("file"), "").expect("written");
        let error = create_for(&base, &base.join("file/jobs")).expect_err("a file").to_string();
        assert!(error.contains("file, which does not exist"), "{error}");
        let error = create_for(&base, Path::new("/no/such/jobs")).expect_err("missing").to_string();
        assert!(error.starts_with("/no/such/jobs needs the folder /no/such, "), "{error}");
    }
}
