//! A description of an API, as OpenAPI 3.0 has it.

use serde_json::Value;
use std::fs;
use std::path::Path;

pub struct Description(Value);

impl Description {
    pub fn read(path: &Path) -> Description {
        let text = fs::read(path).expect("a description");
        Description(serde_json::from_slice(&text).expect("a description is JSON"))
    }

    pub fn write(&self, path: &Path) {
        fs::write(path, self.0.to_string()).expect("a copy of the description");
    }

    /// Drops every `nullable` that stands without a `type`, where it means nothing.
    pub fn drop_idle_nullable(&mut self) {
        drop_idle_nullable(&mut self.0);
    }

    /// What is asked for at a path, as the description writes it: `/repos/{owner}/{repo}`.
    /// The method is in lower case.
    pub fn endpoint(&self, method: &str, path: &str) -> Option<&str> {
        let asked: Vec<&str> = path.split('/').collect();
        let fits = |template: &str| {
            let mut parts = template.split('/').zip(&asked);
            template.split('/').count() == asked.len()
                && parts.all(|(part, asked)| part == *asked || part.starts_with('{'))
        };
        let all = self.0["paths"].as_object()?.iter();
        let found = all.filter(|(template, path)| path.get(method).is_some() && fits(template));
        // The one with the most words of its own.
        let found = found.min_by_key(|(template, _)| template.matches('{').count());
        found.map(|(template, _)| template.as_str())
    }

    /// The parameters in the query of what is asked for.
    pub fn parameters(&self, method: &str, endpoint: &str) -> Vec<&str> {
        let path = &self.0["paths"][endpoint];
        let lists = [&path["parameters"], &path[method]["parameters"]];
        let all = lists.into_iter().filter_map(Value::as_array).flatten();
        let all = all.filter_map(|parameter| match parameter["$ref"].as_str() {
            Some(place) => self.0.pointer(place.strip_prefix('#')?),
            None => Some(parameter),
        });
        let all = all.filter(|parameter| parameter["in"] == "query");
        all.filter_map(|parameter| parameter["name"].as_str())
            .collect()
    }
}

fn drop_idle_nullable(value: &mut Value) {
    match value {
        Value::Object(object) => {
            if object.get("nullable") == Some(&Value::Bool(true)) && !object.contains_key("type") {
                object.remove("nullable");
            }
            object.values_mut().for_each(drop_idle_nullable);
        }
        Value::Array(values) => values.iter_mut().for_each(drop_idle_nullable),
        _ => {}
    }
}
