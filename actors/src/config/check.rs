//! Whether the actors of a box can serve the model together, and which box this machine is.

use super::error::ConfigError;
use super::keys::{BoxSection, Config, Role};

/// Checks the roles of one box. The error is a sentence that names the actors and the way out.
pub(super) fn roles(one: &BoxSection) -> Result<(), String> {
    let with = |role: Role| -> Vec<&str> {
        one.actors.iter().filter(|a| a.roles.contains(&role)).map(|a| a.name.as_str()).collect()
    };
    let dense = only(&with(Role::Dense), "dense")?;
    let logits = only(&with(Role::Logits), "logits")?;
    let reduce = only(&with(Role::Reduce), "reduce")?;
    for (actor, role) in [(logits, "logits"), (reduce, "reduce")] {
        if actor != dense {
            return Err(format!(
                "the role \"{role}\" is `{actor}`'s, but in this build it has to be the dense actor's; move it to `{dense}`"
            ));
        }
    }
    if with(Role::Experts).is_empty() {
        return Err("no actor has the role \"experts\"; give it to at least one".to_owned());
    }
    Ok(())
}

/// The one actor of a role.
fn only<'a>(actors: &[&'a str], role: &str) -> Result<&'a str, String> {
    match actors {
        [one] => Ok(one),
        [] => Err(format!("no actor has the role \"{role}\"; give it to exactly one")),
        more => Err(format!("{} all have the role \"{role}\"; leave it to one of them", more.join(", "))),
    }
}

impl<A> Config<A> {
    /// The box that this machine is: the one of this name; without a name the only one, or the one with the host's name.
    ///
    /// # Errors
    ///
    /// [`ConfigError::NoBox`], with the names there are.
    pub fn this_box(&self, name: Option<&str>) -> Result<&BoxSection, ConfigError> {
        let host = || std::fs::read_to_string("/proc/sys/kernel/hostname").ok().map(|text| text.trim().to_owned());
        self.find_box(name, host)
    }

    /// [`Config::this_box`] with the host's name, which is asked for only when it decides.
    pub(super) fn find_box(
        &self,
        name: Option<&str>,
        host: impl FnOnce() -> Option<String>,
    ) -> Result<&BoxSection, ConfigError> {
        let known = || self.boxes.iter().map(|b| b.name.as_str()).collect::<Vec<_>>().join(", ");
        let find = |name: &str| self.boxes.iter().find(|b| b.name == name);
        let (found, message) = match (name, self.boxes.as_slice()) {
            (Some(name), _) => (find(name), format!("there is no box `{name}`")),
            (None, [one]) => (Some(one), String::new()),
            (None, _) => match host() {
                Some(host) => (find(&host), format!("no box has this host's name `{host}`")),
                None => (None, "the host's name cannot be found out".to_owned()),
            },
        };
        found.ok_or_else(|| ConfigError::NoBox { message, known: known() })
    }
}
