//! Tables in `docs/` that tests write.

use std::path::PathBuf;

const MARK: &str = "<!-- From here on written by `make codegen`. -->\n";

/// Compares a table with the end of a page in `docs/`, or writes it there if ANTREA_CODEGEN is set.
pub(crate) fn compare(page: &str, table: &str) {
    let file = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../docs").join(page);
    let text = std::fs::read_to_string(&file).unwrap();
    let (before, written) = text.split_once(MARK).unwrap();
    if std::env::var_os("ANTREA_CODEGEN").is_some() {
        std::fs::write(&file, format!("{before}{MARK}\n{table}")).unwrap();
        return;
    }
    assert_eq!(written.trim(), table.trim(), "docs/{page} is not what happens; make codegen writes it");
}
