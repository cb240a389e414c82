//! docs/reference/options.md is made from the registry of options.

use std::path::Path;
use std::{env, fs};

#[test]
fn the_reference_of_options_is_up_to_date() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference/options.md");
    let page = sqm_plan::options::reference();
    if env::var_os("SQM_UPDATE").is_some() {
        fs::write(&path, &page).expect("the file can be written");
    }
    let file = fs::read_to_string(&path).unwrap_or_default();
    assert!(
        file == page,
        "{} is out of date: SQM_UPDATE=1 cargo test -p sqm-plan --test reference",
        path.display()
    );
}
