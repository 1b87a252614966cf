//! Places on and above the Earth, and how one sees the other.

use crate::Time;
use std::f64::consts::TAU;

/// WGS 84: the radius at the equator, in km.
const EQUATOR_KM: f64 = 6378.137;
/// WGS 84: the flattening.
const FLATTENING: f64 = 1.0 / 298.257_223_563;
/// The square of the first eccentricity.
const ECCENTRICITY_2: f64 = FLATTENING * (2.0 - FLATTENING);

/// A position that turns with the Earth, in km: x towards 0° N 0° E, y towards 0° N 90° E, z towards the north pole.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Ecef {
    /// Towards the prime meridian.
    pub x: f64,
    /// Towards 90° east.
    pub y: f64,
    /// Towards the north pole.
    pub z: f64,
}

impl Ecef {
    /// Turns a position in TEME, the frame of SGP4, about the pole by Greenwich mean sidereal time (IAU 1982; Vallado
    /// 2006, appendix C).
    ///
    /// UTC stands in for UT1, which moves a point in low orbit by up to half a kilometre, and the motion of the pole
    /// (about 10 m) is left out: both are less than the error of an element set that is a day old.
    pub fn from_teme(position_km: [f64; 3], at: Time) -> Self {
        const J2000: Time = Time::from_unix_ms(946_728_000_000);
        const MICROS_A_YEAR: f64 = 365.25 * 86_400e6;
        let years = (at.unix_micros() - J2000.unix_micros()) as f64 / MICROS_A_YEAR;
        let (sin, cos) = sgp4::iau_epoch_to_sidereal_time(years).sin_cos();
        let [x, y, z] = position_km;
        Self {
            x: cos * x + sin * y,
            y: cos * y - sin * x,
            z,
        }
    }

    /// The distance to another position, in km.
    pub fn range_km(self, other: Self) -> f64 {
        (other - self).norm()
    }

    /// How far the straight line to another position stays above a sphere with the radius of the equator, in km;
    /// negative where the Earth lies between.
    pub fn clearance_km(self, other: Self) -> f64 {
        let along = other - self;
        let length_2 = along.dot(along);
        let nearest = if length_2 > 0.0 {
            (-self.dot(along) / length_2).clamp(0.0, 1.0)
        } else {
            0.0
        };
        let point = Self {
            x: self.x + nearest * along.x,
            y: self.y + nearest * along.y,
            z: self.z + nearest * along.z,
        };
        point.norm() - EQUATOR_KM
    }

    /// The point of the ellipsoid below and the height above it (Bowring 1976, one step: good to centimetres in low
    /// orbit, to decimetres far above).
    pub fn geodetic(self) -> Geodetic {
        let polar = EQUATOR_KM * (1.0 - FLATTENING);
        let from_axis = self.x.hypot(self.y);
        let (sin, cos) = (self.z * EQUATOR_KM).atan2(from_axis * polar).sin_cos();
        let second_eccentricity_2 = ECCENTRICITY_2 / (1.0 - ECCENTRICITY_2);
        let latitude = (self.z + second_eccentricity_2 * polar * sin.powi(3))
            .atan2(from_axis - ECCENTRICITY_2 * EQUATOR_KM * cos.powi(3));
        let (sin, cos) = latitude.sin_cos();
        // This form holds at the poles too, where the distance from the axis vanishes.
        let height = from_axis * cos + self.z * sin - EQUATOR_KM * (1.0 - ECCENTRICITY_2 * sin * sin).sqrt();
        Geodetic {
            latitude_deg: latitude.to_degrees(),
            longitude_deg: self.y.atan2(self.x).to_degrees(),
            height_km: height,
        }
    }

    pub(crate) fn norm(self) -> f64 {
        self.dot(self).sqrt()
    }

    fn dot(self, other: Self) -> f64 {
        self.x * other.x + self.y * other.y + self.z * other.z
    }
}

impl std::ops::Sub for Ecef {
    type Output = Self;

    fn sub(self, other: Self) -> Self {
        Self {
            x: self.x - other.x,
            y: self.y - other.y,
            z: self.z - other.z,
        }
    }
}

/// A place by latitude and longitude in degrees and height in km, on the WGS 84 ellipsoid.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Geodetic {
    latitude_deg: f64,
    longitude_deg: f64,
    height_km: f64,
}

/// Numbers that are no place.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("{field} is {value}: it must lie between {least} and {most}")]
pub struct PlaceError {
    /// Which of the three.
    pub field: &'static str,
    /// As given.
    pub value: f64,
    /// The least that is possible.
    pub least: f64,
    /// The most that is possible.
    pub most: f64,
}

impl Geodetic {
    /// A place: latitude from -90 to 90 degrees (north is positive), longitude from -180 to 360 degrees (east is
    /// positive), height from -12 to 1,000,000 km above the ellipsoid.
    ///
    /// # Errors
    /// [`PlaceError`] names the first number that is outside its bounds.
    pub fn new(latitude_deg: f64, longitude_deg: f64, height_km: f64) -> Result<Self, PlaceError> {
        for (field, value, least, most) in [
            ("latitude", latitude_deg, -90.0, 90.0),
            ("longitude", longitude_deg, -180.0, 360.0),
            ("height", height_km, -12.0, 1e6),
        ] {
            // Written so that NaN is refused.
            if !(least..=most).contains(&value) {
                return Err(PlaceError {
                    field,
                    value,
                    least,
                    most,
                });
            }
        }
        Ok(Self {
            latitude_deg,
            longitude_deg,
            height_km,
        })
    }

    /// Degrees, north is positive.
    pub const fn latitude_deg(self) -> f64 {
        self.latitude_deg
    }

    /// Degrees, east is positive.
    pub const fn longitude_deg(self) -> f64 {
        self.longitude_deg
    }

    /// Kilometres above the ellipsoid.
    pub const fn height_km(self) -> f64 {
        self.height_km
    }

    /// The same place in coordinates that turn with the Earth.
    pub fn ecef(self) -> Ecef {
        let up = self.up();
        let curvature = EQUATOR_KM / (1.0 - ECCENTRICITY_2 * up.z * up.z).sqrt();
        Ecef {
            x: (curvature + self.height_km) * up.x,
            y: (curvature + self.height_km) * up.y,
            z: (curvature * (1.0 - ECCENTRICITY_2) + self.height_km) * up.z,
        }
    }

    /// The angle of a target above the horizon, in degrees from -90 to 90. Refraction is left out: it would lift a
    /// target at the horizon by half a degree, and at 10 degrees by a tenth.
    pub fn elevation_deg(self, target: Ecef) -> f64 {
        self.horizon().elevation_deg(target)
    }

    pub(crate) fn horizon(self) -> Horizon {
        Horizon {
            place: self.ecef(),
            up: self.up(),
        }
    }

    /// The normal of the ellipsoid.
    fn up(self) -> Ecef {
        let (sin_latitude, cos_latitude) = self.latitude_deg.to_radians().sin_cos();
        let (sin_longitude, cos_longitude) = (self.longitude_deg.to_radians() % TAU).sin_cos();
        Ecef {
            x: cos_latitude * cos_longitude,
            y: cos_latitude * sin_longitude,
            z: sin_latitude,
        }
    }
}

/// A place from which many targets are looked at.
pub(crate) struct Horizon {
    pub(crate) place: Ecef,
    up: Ecef,
}

impl Horizon {
    pub(crate) fn elevation_deg(&self, target: Ecef) -> f64 {
        let sight = target - self.place;
        (sight.dot(self.up) / sight.norm())
            .clamp(-1.0, 1.0)
            .asin()
            .to_degrees()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Vallado, Crawford, Hujsak, Kelso, "Revisiting Spacetrack Report #3" (2006), appendix C: 2004-04-06
    /// 07:51:28.386009 UTC, UT1-UTC = -0.4399619 s. Given UT1, only the motion of the pole is left (10 m); given UTC,
    /// half a kilometre.
    #[test]
    fn teme_turns_into_the_published_position() {
        let teme = [5_094.180_162_10, 6_127.644_659_50, 6_380.344_532_70];
        let published = Ecef {
            x: -1_033.479_383_00,
            y: 7_901.295_275_40,
            z: 6_380.356_595_80,
        };
        let ut1 = "2004-04-06T07:51:27.946047Z".parse().unwrap();
        let utc = "2004-04-06T07:51:28.386009Z".parse().unwrap();
        let error = |at| Ecef::from_teme(teme, at).range_km(published);
        assert!(error(ut1) < 0.02, "{} km", error(ut1));
        assert!((0.1..0.5).contains(&error(utc)), "{} km", error(utc));
    }

    /// Vallado, Fundamentals of Astrodynamics and Applications, example 3-3.
    #[test]
    fn a_position_has_the_published_latitude_and_height() {
        let place = Ecef {
            x: 6524.834,
            y: 6862.875,
            z: 6448.296,
        }
        .geodetic();
        assert!((place.latitude_deg() - 34.352_496).abs() < 1e-5, "{place:?}");
        assert!((place.longitude_deg() - 46.446_4).abs() < 1e-4, "{place:?}");
        assert!((place.height_km() - 5_085.22).abs() < 0.01, "{place:?}");
    }

    proptest! {
        #[test]
        fn places_come_back(latitude in -90.0..=90.0f64, longitude in -179.9..179.9f64, height in -1.0..2000.0f64) {
            let place = Geodetic::new(latitude, longitude, height).unwrap();
            let back = place.ecef().geodetic();
            prop_assert!(place.ecef().range_km(back.ecef()) < 5e-5, "{:?}", back);
            prop_assert!((back.height_km() - height).abs() < 1e-5, "{:?}", back);
        }

        #[test]
        fn what_is_above_stands_in_the_zenith(latitude in -90.0..90.0f64, longitude in -180.0..180.0f64, height in 1.0..40e3) {
            let ground = Geodetic::new(latitude, longitude, 0.0).unwrap();
            let above = Geodetic::new(latitude, longitude, height).unwrap().ecef();
            prop_assert!(ground.elevation_deg(above) > 89.99);
            prop_assert!((ground.ecef().range_km(above) - height).abs() < 1e-6);
        }
    }

    #[test]
    fn the_earth_hides_the_other_side() {
        let at = |longitude| Geodetic::new(0.0, longitude, 550.0).unwrap().ecef();
        assert!((at(0.0).clearance_km(at(0.0)) - 550.0).abs() < 1e-6);
        assert!((at(0.0).clearance_km(at(180.0)) + EQUATOR_KM).abs() < 1e-6);
        // The chord between two satellites dips by r (1 - cos(half the angle)).
        let dip = (EQUATOR_KM + 550.0) * (1.0 - 20.0f64.to_radians().cos());
        assert!((at(0.0).clearance_km(at(40.0)) - (550.0 - dip)).abs() < 1e-6);
    }

    #[test]
    fn numbers_that_are_no_place_are_named() {
        let error = Geodetic::new(91.0, 0.0, 0.0).unwrap_err();
        assert_eq!(
            error.to_string(),
            "latitude is 91: it must lie between -90 and 90"
        );
        assert_eq!(Geodetic::new(0.0, f64::NAN, 0.0).unwrap_err().field, "longitude");
        assert_eq!(
            Geodetic::new(0.0, 0.0, f64::INFINITY).unwrap_err().field,
            "height"
        );
    }
}
