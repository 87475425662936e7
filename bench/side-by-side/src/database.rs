//! Where the programs for PostgreSQL keep their data: in the database that `BENCH_DATABASE_URL` names, in a schema of
//! its own for each run.

use crate::bench::Outcome;

/// The database of the comparison.
pub fn url() -> Outcome<String> {
    Ok(std::env::var("BENCH_DATABASE_URL").map_err(|_| "BENCH_DATABASE_URL is not set")?)
}

/// The schema of a run: what would be the file's name elsewhere, so that several processes of one run share it.
pub fn schema(file_url: &str) -> String {
    let file = file_url.trim_start_matches("sqlite:").split('?').next().unwrap_or_default();
    let letters = file
        .chars()
        .map(|letter| if letter.is_ascii_alphanumeric() { letter.to_ascii_lowercase() } else { '_' });
    let name: String = letters.collect();
    // The end of a path tells runs apart, and 63 letters are all that a name can have.
    let end = name.len().saturating_sub(62);
    format!("b{}", &name[end..])
}
