//! Overall response time: one figure of a curve of response times over load.
//!
//! - Two definitions, each held here against published results whose tables are known.

/// SPECsfs2008: area under the curve from the origin, divided by the peak's throughput. Points are (op/s, ms), rising.
/// `None` without points.
pub fn sfs2008(points: &[(f64, f64)]) -> Option<f64> {
    let (first, last) = (points.first()?, points.last()?);
    let triangle = first.0 * first.1 / 2.0;
    (last.0 > 0.0).then(|| (triangle + trapezoids(points)) / last.0)
}

/// SPECstorage 2020: area under the curve between the first and the last point, divided by their distance. Points are
/// (units, ms), rising. `None` with fewer than two points.
pub fn spec2020(points: &[(f64, f64)]) -> Option<f64> {
    let (first, last) = (points.first()?, points.last()?);
    (last.0 > first.0).then(|| trapezoids(points) / (last.0 - first.0))
}

fn trapezoids(points: &[(f64, f64)]) -> f64 {
    let area = |pair: &[(f64, f64)]| (pair[1].0 - pair[0].0) * (pair[0].1 + pair[1].1) / 2.0;
    points.windows(2).map(area).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Published points of an edge cluster over an encrypted object store (spec.org, 2014): ORT 0.95.
    const AVERE: [(f64, f64); 10] = [
        (17807.0, 0.3),
        (35659.0, 0.4),
        (53529.0, 0.5),
        (71387.0, 0.6),
        (89262.0, 0.8),
        (107172.0, 0.9),
        (125280.0, 1.1),
        (143069.0, 1.4),
        (160721.0, 1.9),
        (180229.0, 3.0),
    ];

    /// Published points of 704 jobs (spec.org, 2024): ORT 0.84.
    const QUMULO: [(f64, f64); 11] = [
        (64.0, 0.794),
        (128.0, 0.772),
        (192.0, 0.789),
        (256.0, 0.793),
        (320.0, 0.812),
        (384.0, 0.825),
        (448.0, 0.840),
        (512.0, 0.861),
        (576.0, 0.899),
        (640.0, 0.928),
        (704.0, 0.976),
    ];

    #[test]
    fn published_results_are_reproduced() {
        let avere = sfs2008(&AVERE).unwrap();
        assert!((avere - 0.953).abs() < 0.0005, "{avere}");
        assert_eq!(format!("{avere:.2}"), "0.95");
        let qumulo = spec2020(&QUMULO).unwrap();
        assert!((qumulo - 0.8404).abs() < 0.00005, "{qumulo}");
        assert_eq!(format!("{qumulo:.2}"), "0.84");
    }

    #[test]
    fn too_few_points_have_none() {
        assert_eq!(sfs2008(&[]), None);
        assert_eq!(spec2020(&QUMULO[..1]), None);
    }
}
