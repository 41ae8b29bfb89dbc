//! Files and folders. A path is taken from where the process stands when the option is given.

use std::path::{Path, PathBuf};

use super::{Form, Kind, Refused};
use crate::options::Value;

/// A file, or a place for one.
pub struct File;

/// A folder that is there.
pub struct Folder;

fn path(given: &Value) -> Result<Option<PathBuf>, Refused> {
    let given: &Path = match given {
        Value::Nothing => return Ok(None),
        Value::Text(text) => text.as_ref(),
        Value::Path(path) => path,
        _ => return Err(Refused::new("is not a path", "give a string or a path")),
    };
    std::path::absolute(given)
        .map(Some)
        .map_err(|error| Refused::new(format!("is not a path: {error}"), "give another"))
}

impl Form for File {
    fn annotation(&self) -> String {
        "str | os.PathLike[str] | None".into()
    }

    fn placeholder(&self) -> &'static str {
        "FILE"
    }
}

impl Kind<Option<PathBuf>> for File {
    fn parse(&self, given: &Value) -> Result<Option<PathBuf>, Refused> {
        path(given)
    }
}

impl Form for Folder {
    fn annotation(&self) -> String {
        File.annotation()
    }

    fn placeholder(&self) -> &'static str {
        "DIR"
    }
}

impl Kind<Option<PathBuf>> for Folder {
    fn parse(&self, given: &Value) -> Result<Option<PathBuf>, Refused> {
        let folder = path(given)?;
        match &folder {
            Some(folder) if !folder.is_dir() => {
                Err(Refused::new("is not a folder", format!("make it first: mkdir -p {}", folder.display())))
            }
            _ => Ok(folder),
        }
    }
}
