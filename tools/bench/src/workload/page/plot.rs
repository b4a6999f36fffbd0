//! What a plot shows, and its axes: ends and steps that people read easily.

pub struct Plot {
    pub title: &'static str,
    /// Title and unit of the axis.
    pub x: &'static str,
    pub y: &'static str,
    pub series: Vec<Series>,
}

pub struct Series {
    pub name: &'static str,
    pub points: Vec<(f64, f64)>,
}

/// An axis from 0 to a round end.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Axis {
    pub end: f64,
    pub step: f64,
}

impl Axis {
    /// That holds `most`.
    pub fn holding(most: f64) -> Axis {
        let most = if most.is_finite() && most > 0.0 { most } else { 1.0 };
        let magnitude = 10_f64.powf((most / 5.0).log10().floor());
        let steps = [1.0, 2.0, 2.5, 5.0, 10.0].map(|step| step * magnitude);
        let step = steps.into_iter().find(|step| step * 5.0 >= most).unwrap_or(magnitude * 10.0);
        Axis { end: (most / step).ceil() * step, step }
    }

    pub fn marks(self) -> impl Iterator<Item = f64> {
        (0..=(self.end / self.step).round() as u32).map(move |index| f64::from(index) * self.step)
    }

    /// A mark's text.
    pub fn text(self, value: f64) -> String {
        let digits = (-self.step.log10().floor()).max(0.0) as usize;
        let digits = if self.step * 10_f64.powi(digits as i32) % 1.0 > 1e-9 { digits + 1 } else { digits };
        format!("{value:.digits$}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn axes_end_at_round_numbers() {
        for (most, end, step) in [(0.95, 1.0, 0.2), (3.2, 4.0, 1.0), (60_000.0, 60_000.0, 20_000.0), (11.0, 12.5, 2.5)]
        {
            let axis = Axis::holding(most);
            assert!((axis.end - end).abs() < 1e-9 && (axis.step - step).abs() < 1e-9, "{most}: {axis:?}");
        }
        assert_eq!(Axis::holding(f64::NAN).end, 1.0);
        assert_eq!(Axis::holding(11.0).text(2.5), "2.5");
        assert_eq!(Axis::holding(60_000.0).text(20_000.0), "20000");
    }
}
