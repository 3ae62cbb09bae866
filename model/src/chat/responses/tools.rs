//! The tools of the Responses API: functions, custom tools, and namespaces of them.

use std::collections::HashMap;

use serde_json::{Map, Value, json};

use super::Origin;
use crate::Family;
use crate::chat::read::{self, BadRequest};
use crate::chat::{Tool, ToolChoice, tools as common};

/// The tools of one request, as they are gathered.
pub(super) struct Tools {
    pub(super) family: Family,
    tools: Vec<Tool>,
    origins: HashMap<String, Origin>,
}

impl Tools {
    pub(super) fn new(family: Family) -> Tools {
        Tools { family, tools: Vec::new(), origins: HashMap::new() }
    }

    /// Adds a list of tools; `deferred`: the head of the prompt does not show them. Returns the names of the new ones.
    pub(super) fn add(&mut self, list: &[Value], at: &str, deferred: bool) -> Result<Vec<String>, BadRequest> {
        let first = self.tools.len();
        self.add_in(list, at, deferred, None)?;
        Ok(self.tools[first..].iter().map(|tool| tool.name.clone()).collect())
    }

    fn add_in(&mut self, list: &[Value], at: &str, deferred: bool, namespace: Option<&str>) -> Result<(), BadRequest> {
        for (i, item) in list.iter().enumerate() {
            let at = format!("{at}[{i}]");
            let map = item.as_object().ok_or_else(|| read::wrong(&at, "an object", item))?;
            let kind = read::string(map, &at, "type")?.unwrap_or("function");
            let tool = match kind {
                // The shape of chat completions is taken, too.
                "function" => match read::object(map, &at, "function")? {
                    Some(inner) => common::tool(inner, &read::place(&at, "function"), "parameters")?,
                    None => common::tool(map, &at, "parameters")?,
                },
                "custom" => custom(map, &at)?,
                "namespace" if namespace.is_none() => {
                    let name = read::string(map, &at, "name")?.unwrap_or_default();
                    self.add_in(read::array(map, &at, "tools")?, &read::place(&at, "tools"), deferred, Some(name))?;
                    continue;
                }
                kind => {
                    tracing::warn!(kind, "a tool that only the hosted service has is left out");
                    continue;
                }
            };
            let deferred = deferred || read::boolean(map, &at, "defer_loading")?.unwrap_or(false);
            let name = flat(self.family, namespace, &tool.name);
            let custom = kind == "custom";
            if custom || namespace.is_some() {
                let origin = Origin { name: tool.name.clone(), namespace: namespace.map(str::to_owned), custom };
                self.origins.insert(name.clone(), origin);
            }
            // What the history finds again may be listed already.
            if !(deferred && self.tools.iter().any(|known| known.name == name)) {
                self.tools.push(Tool { name, deferred, ..tool });
            }
        }
        Ok(())
    }

    /// The tools of these names.
    pub(super) fn named<'t>(&'t self, names: &'t [String]) -> impl Iterator<Item = &'t Tool> {
        self.tools.iter().filter(|tool| names.contains(&tool.name))
    }

    /// `tool_choice`. A list of allowed tools leaves only those.
    pub(super) fn choose(&mut self, body: &Map<String, Value>) -> Result<ToolChoice, BadRequest> {
        const AT: &str = "tool_choice";
        let Some(Value::Object(map)) = read::get(body, AT) else { return common::choice(body, &self.tools) };
        match read::string(map, AT, "type")? {
            Some("function" | "custom") | None => {
                let name = self.flat_name(map);
                // The plain form is read where all others are.
                let named = Map::from_iter([(AT.to_owned(), json!({"type": "function", "name": name}))]);
                common::choice(if name.is_empty() { body } else { &named }, &self.tools)
            }
            Some("allowed_tools") => {
                let allowed: Vec<String> = read::array(map, AT, "tools")?
                    .iter()
                    .filter_map(Value::as_object)
                    .map(|t| self.flat_name(t))
                    .collect();
                self.tools.retain(|tool| allowed.contains(&tool.name));
                match read::string(map, AT, "mode")? {
                    Some("required") => Ok(ToolChoice::Required),
                    _ => Ok(ToolChoice::Auto),
                }
            }
            // A tool of the hosted service, which was left out.
            Some(_) => Ok(ToolChoice::Auto),
        }
    }

    /// The name in the prompt of the tool that `map` names.
    pub(super) fn flat_name(&self, map: &Map<String, Value>) -> String {
        let text = |key| read::get(map, key).and_then(Value::as_str);
        let inner = map.get("function").and_then(|f| f.get("name")).and_then(Value::as_str);
        flat(self.family, text("namespace"), text("name").or(inner).unwrap_or_default())
    }

    pub(super) fn finish(self) -> Result<(Vec<Tool>, HashMap<String, Origin>), BadRequest> {
        Ok((common::distinct(self.tools)?, self.origins))
    }
}

/// How the prompt names a tool of a namespace.
fn flat(family: Family, namespace: Option<&str>, name: &str) -> String {
    match (namespace, family) {
        (None | Some(""), _) => name.to_owned(),
        (Some(namespace), Family::V4) => format!("{namespace}__{name}"),
        (Some(namespace), Family::V41) => format!("{namespace}::{name}"),
    }
}

/// A tool that takes a text becomes one with the parameter `input`. Its grammar is told in the description.
fn custom(map: &Map<String, Value>, at: &str) -> Result<Tool, BadRequest> {
    let plain = common::tool(map, at, "parameters")?;
    let mut description = plain.description;
    if let Some(format) = read::object(map, at, "format")? {
        let at = read::place(at, "format");
        if let Some(definition) = read::string(format, &at, "definition")? {
            let syntax = read::string(format, &at, "syntax")?.unwrap_or("lark");
            if !description.is_empty() {
                description.push_str("\n\n");
            }
            description.push_str(&format!("The input must follow this {syntax} grammar:\n{definition}"));
        }
    }
    let parameters = json!({"type": "object", "properties": {"input": {"type": "string"}}, "required": ["input"]});
    Ok(Tool { description, parameters, ..plain })
}
