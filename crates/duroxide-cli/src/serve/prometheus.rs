//! Prometheus' text format.

use std::fmt::Write;

/// The kinds of metric that there are here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Goes up and down.
    Gauge,
    /// Only goes up.
    Counter,
}

/// Writes metrics.
#[derive(Debug, Default)]
pub struct Text {
    text: String,
}

impl Text {
    /// Begins a metric; its samples follow.
    pub fn metric(&mut self, name: &str, kind: Kind, help: &str) -> &mut Self {
        let kind = match kind {
            Kind::Gauge => "gauge",
            Kind::Counter => "counter",
        };
        // Writing to a string cannot fail.
        let _ = writeln!(self.text, "# HELP {name} {help}\n# TYPE {name} {kind}");
        self
    }

    /// Writes a sample.
    pub fn sample(&mut self, name: &str, labels: &[(&str, &str)], value: f64) -> &mut Self {
        self.text.push_str(name);
        if !labels.is_empty() {
            let labels: Vec<String> =
                labels.iter().map(|(name, value)| format!("{name}=\"{}\"", escaped(value))).collect();
            let _ = write!(self.text, "{{{}}}", labels.join(","));
        }
        let _ = writeln!(self.text, " {value}");
        self
    }

    /// The text.
    pub fn finish(self) -> String {
        self.text
    }
}

fn escaped(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_escaped() {
        let mut text = Text::default();
        text.metric("duroxide_queue_depth", Kind::Gauge, "What waits").sample(
            "duroxide_queue_depth",
            &[("queue", "worker"), ("tag", "a\"b\\c\nd")],
            3.0,
        );
        text.sample("duroxide_queue_depth", &[], 0.25);
        assert_eq!(
            text.finish(),
            "# HELP duroxide_queue_depth What waits\n\
             # TYPE duroxide_queue_depth gauge\n\
             duroxide_queue_depth{queue=\"worker\",tag=\"a\\\"b\\\\c\\nd\"} 3\n\
             duroxide_queue_depth 0.25\n"
        );
    }
}
