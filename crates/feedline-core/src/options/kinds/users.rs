//! Users and groups.

use super::{Form, Kind, Refused};
use crate::access::Allow;
use crate::options::Value;

/// Users and groups that may attach. Only their numbers become an [`Allow`]: names are resolved before.
pub struct UsersAndGroups;

impl Form for UsersAndGroups {
    fn annotation(&self) -> String {
        "Iterable[str | int]".into()
    }

    fn placeholder(&self) -> &'static str {
        "WHO"
    }

    fn repeats(&self) -> bool {
        true
    }

    fn read(&self, typed: &str) -> Value {
        Value::whole(typed).unwrap_or_else(|| typed.into())
    }
}

impl Kind<Allow> for UsersAndGroups {
    fn parse(&self, given: &Value) -> Result<Allow, Refused> {
        let Value::List(given) = given else { return Err(unknown()) };
        let mut allow = Allow::default();
        for one in given {
            match one {
                Value::Int(uid) => allow.uids.push((*uid).try_into().map_err(|_| unknown())?),
                Value::Text(group) => {
                    let gid = group.strip_prefix('@').and_then(|gid| gid.parse().ok());
                    allow.gids.push(gid.ok_or_else(unknown)?);
                }
                _ => return Err(unknown()),
            }
        }
        Ok(allow)
    }
}

fn unknown() -> Refused {
    Refused::new("names what is neither a user nor a group", "give uids, and gids as \"@1001\"")
}
