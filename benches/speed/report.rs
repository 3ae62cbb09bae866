//! The table.

/// One line: what was measured, how many bytes it moved, the rate, and the rate that one might expect.
pub(crate) struct Row {
    pub(crate) what: String,
    /// Bytes read, of weights and activations.
    pub(crate) moved: f64,
    pub(crate) rate: f64,
    pub(crate) estimate: f64,
    /// Rates are divided by it for printing.
    pub(crate) scale: f64,
    pub(crate) unit: &'static str,
}

/// Prints rows as they come; leaves out those that the command line does not ask for.
pub(crate) struct Report {
    wanted: Vec<String>,
    titled: bool,
}

impl Report {
    /// `wanted`: parts of the names of rows; none = all.
    pub(crate) fn new(wanted: Vec<String>) -> Report {
        Report { wanted, titled: false }
    }

    pub(crate) fn wants(&self, what: &str) -> bool {
        self.wanted.is_empty() || self.wanted.iter().any(|w| what.contains(w.as_str()))
    }

    pub(crate) fn row(&mut self, row: &Row) {
        if !std::mem::replace(&mut self.titled, true) {
            println!("| {:34} | {:>9} | {:>20} | {:>9} | {:>6} |", "what", "MB moved", "measured", "estimate", "share");
            println!("|{:-<36}|{:->11}|{:->22}|{:->11}|{:->8}|", "", ":", ":", ":", ":");
        }
        println!(
            "| {:34} | {:9.2} | {:>20} | {:9.2} | {:4.0} % |",
            row.what,
            row.moved / 1e6,
            format!("{:.2} {}", row.rate / row.scale, row.unit),
            row.estimate / row.scale,
            100.0 * row.rate / row.estimate,
        );
    }
}
