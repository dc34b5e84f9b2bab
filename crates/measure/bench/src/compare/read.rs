//! Reading of the two files: [`read()`] finds, checks and decodes them.
//!
//! The version of the schema is checked first, so that a file of another version is rejected
//! because of its version and not because of the first missing field.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde_json::Value;
use thiserror::Error;

use super::names;
use crate::schema::{Results, SCHEMA};

#[derive(Debug, Clone)]
pub struct RunFiles {
    pub path: PathBuf,
    pub results: Results,
}

/// The reason why two files cannot be compared.
#[derive(Debug, Error)]
pub enum ReadError {
    /// The file does not exist or cannot be read.
    #[error("{}: {error}{}", .path.display(), if *.folder {
        "; expected a directory with the results.json of `tontine-measure --out`"
    } else {
        ""
    })]
    Missing {
        path: PathBuf,
        error: io::Error,
        /// `true` if the given path is a directory.
        folder: bool,
    },
    /// The file is not JSON, or is truncated.
    #[error("{}: {error}; expected a results.json of `tontine-measure`{}", .path.display(),
        if .error.is_eof() { ", and this one is cut off" } else { "" })]
    Garbled { path: PathBuf, error: serde_json::Error },
    #[error("{}: has no `schema`; expected a results.json of `tontine-measure`", .path.display())]
    NoRun { path: PathBuf },
    /// The file has a version that this build does not support.
    #[error("{}: schema {found}, and this build reads schema {SCHEMA}; measure again with one \
        build, or compare with the build that wrote it", .path.display())]
    OtherSchema { path: PathBuf, found: Value },
    /// The two files have different versions.
    #[error("{} has schema {base_found}, {} has schema {new_found}: figures of different schemas \
        are not compared; measure the older one again with a build that writes schema {SCHEMA}",
        .base.display(), .new.display())]
    TwoSchemas { base: PathBuf, base_found: Value, new: PathBuf, new_found: Value },
}

pub fn read(base: &Path, new: &Path) -> Result<(RunFiles, RunFiles), ReadError> {
    let (base, new) = (VersionedFile::read(base)?, VersionedFile::read(new)?);
    if base.schema != new.schema {
        return Err(ReadError::TwoSchemas {
            base: base.path,
            base_found: base.schema,
            new: new.path,
            new_found: new.schema,
        });
    }
    Ok((base.decode()?, new.decode()?))
}

/// A file with its version, not yet decoded.
struct VersionedFile {
    path: PathBuf,
    text: String,
    schema: Value,
}

impl VersionedFile {
    fn read(named: &Path) -> Result<Self, ReadError> {
        let folder = named.is_dir();
        let path = if folder { named.join("results.json") } else { named.to_owned() };
        let text = match fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) => return Err(ReadError::Missing { path, error, folder }),
        };
        let value: Value = match serde_json::from_str(&text) {
            Ok(value) => value,
            Err(error) => return Err(ReadError::Garbled { path, error }),
        };
        match value.get("schema") {
            Some(schema) => Ok(Self { schema: schema.clone(), path, text }),
            None => Err(ReadError::NoRun { path }),
        }
    }

    fn decode(self) -> Result<RunFiles, ReadError> {
        if self.schema != SCHEMA {
            return Err(ReadError::OtherSchema { path: self.path, found: self.schema });
        }
        match serde_json::from_str(&self.text) {
            Ok(mut results) => {
                names::rename(&mut results);
                Ok(RunFiles { path: self.path, results })
            }
            Err(error) => Err(ReadError::Garbled { path: self.path, error }),
        }
    }
}
