//! Tables for people: columns as wide as their widest cell, two blanks between them.

/// Prints `rows` under `head`; cells of the last column are not padded.
pub fn print(head: &[&str], rows: &[Vec<String>]) {
    say_part!("{}", render(head, rows));
}

fn render(head: &[&str], rows: &[Vec<String>]) -> String {
    let width = |column: usize| {
        let cells = rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count());
        cells.chain([head[column].chars().count()]).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..head.len()).map(width).collect();
    let mut out = String::new();
    let mut line = |cells: Vec<&str>| {
        let mut text = String::new();
        for (cell, width) in cells.iter().zip(&widths) {
            text.push_str(cell);
            text.extend(std::iter::repeat_n(' ', width + 2 - cell.chars().count()));
        }
        out.push_str(text.trim_end());
        out.push('\n');
    };
    line(head.to_vec());
    for row in rows {
        line(row.iter().map(String::as_str).collect());
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up() {
        let rows = vec![vec!["long name".to_owned(), "1".to_owned()], vec!["x".to_owned(), "22".to_owned()]];
        assert_eq!(render(&["NAME", "SIZE"], &rows), "NAME       SIZE\nlong name  1\nx          22\n");
    }
}
