"""The table of functions: arithmetic, bits, and functions of numbers."""

from __future__ import annotations

from ddcli.expressions import operators as rules
from ddcli.expressions.arithmetic import arithmetic, magnitude, negate, rounding
from ddcli.expressions.function import table

ARITHMETIC = table(
    """
    + [arithmetic]: a + b -- Sum. Integer overflow is an error. An integer adds days to a date, an interval makes it a timestamp. -- 2 + 3 => 5
    - [arithmetic]: a - b -- Difference; of two dates a number of days, of timestamps an interval. -- 2 - 3 => -1
    * [arithmetic]: a * b -- Product. Integer overflow is an error. -- 2 * 3 => 6
    / [arithmetic]: a / b -- Quotient: a float, of decimals a decimal with at least 6 digits after the point. Division by zero is an error, for floats too. -- 5 / 2 => 2.5e0
    // [arithmetic]: a // b -- Quotient of integers, cut toward zero. Division by zero is an error. -- -7 // 2 => -3
    % [arithmetic]: a % b -- Remainder of `//`, with the sign of `a`; not for floats. -- -7 % 2 => -1
    mod [arithmetic]: mod(a, b) -- The same as `a % b`. -- mod(7, 3) => 1
    try_add [arithmetic]: try_add(a, b) -- `a + b`, null on overflow. -- try_add(1, 2) => 3
    try_subtract [arithmetic]: try_subtract(a, b) -- `a - b`, null on overflow. -- try_subtract(1, 2) => -1
    try_multiply [arithmetic]: try_multiply(a, b) -- `a * b`, null on overflow. -- try_multiply(4, 2) => 8
    try_divide [arithmetic]: try_divide(a, b) -- `a / b`, null when `b` is zero. -- try_divide(1, 0) => null
    negate [negate]: -a -- The value with the other sign. -- -(3) => -3
    abs [magnitude]: abs(x) -- Absolute value, in the type of x. -- abs(-3) => 3
    sign [magnitude]: sign(x) -- -1, 0 or 1; of NaN 0. -- sign(-2.5) => -1
    round [rounding]: round(x, digits = 0) -- Round half away from zero. A float counts as it is in binary, where 2.675e0 is less than 2.675. -- round(-2.5) => cast(-3 as decimal(2, 0))
    trunc [rounding]: trunc(x, digits = 0) -- Cut digits, toward zero. -- trunc(-2.58, 1) => -2.5
    floor [rounding]: floor(x) -- Largest whole number not above x. -- floor(-2.5e0) => -3e0
    ceil [rounding]: ceil(x) -- Smallest whole number not below x. -- ceil(2.1e0) => 3e0
    sqrt(x: float) -> float64 -- Square root; of a negative number an error. -- sqrt(16) => 4e0
    power(x: float, y: float) -> float64 -- x to the y. Zero to a negative power, or a negative to a broken one, is an error. -- power(2, 10) => 1024e0
    exp(x: float) -> float64 -- e to the x. -- exp(0) => 1e0
    ln(x: float) -> float64 -- Natural logarithm; of zero or less an error. -- ln(1) => 0e0
    log10(x: float) -> float64 -- Logarithm to base 10; of zero or less an error. -- log10(1000) => 3e0
    log(base: float, x: float) -> float64 -- Logarithm of x to a base, in this order. -- log(2, 8) => 3e0
    log2(x: float) -> float64 -- Logarithm to base 2; of zero or less an error. -- log2(8) => 3e0 -- log(2e0, x)
    cbrt(x: float) -> float64 -- Cube root. -- cbrt(27) => 3e0
    pi() -> float64 -- The ratio of a circle's circumference to its diameter. -- pi() => 3.141592653589793e0 -- 3.141592653589793e0
    sin(x: float) -> float64 -- Sine of an angle in radians; of an infinity NaN. -- sin(0) => 0e0
    cos(x: float) -> float64 -- Cosine of an angle in radians; of an infinity NaN. -- cos(0) => 1e0
    tan(x: float) -> float64 -- Tangent of an angle in radians; of an infinity NaN. -- tan(0) => 0e0
    asin(x: float) -> float64 -- The angle whose sine is x; an error outside of -1 to 1. -- asin(0) => 0e0
    acos(x: float) -> float64 -- The angle whose cosine is x; an error outside of -1 to 1. -- acos(1) => 0e0
    atan(x: float) -> float64 -- The angle whose tangent is x. -- atan(0) => 0e0
    atan2(y: float, x: float) -> float64 -- The angle of the point (x, y), from -pi to pi. -- atan2(0, 1) => 0e0
    degrees(x: float) -> float64 -- Radians as degrees. -- degrees(0) => 0e0 -- x * (180e0 / 3.141592653589793e0)
    radians(x: float) -> float64 -- Degrees as radians. -- radians(0) => 0e0 -- x * (3.141592653589793e0 / 180e0)
    is_nan(x: float) -> bool -- True if x is NaN. -- is_nan(cast('nan' as float64)) => true
    is_inf(x: float) -> bool -- True if x is an infinity. -- is_inf(1e0) => false -- abs(x) = cast('inf' as float64)
    is_finite(x: float) -> bool -- True if x is neither NaN nor an infinity. -- is_finite(1e0) => true -- abs(x) < cast('inf' as float64)
    """,
    arithmetic=arithmetic,
    negate=negate,
    magnitude=magnitude,
    rounding=rounding,
)

BITS = table(
    """
    & [bits]: a & b -- Bitwise and of integers. -- 5 & 3 => 1
    | [bits]: a | b -- Bitwise or. -- 5 | 3 => 7
    xor [bits]: xor(a, b) -- Bitwise exclusive or. -- xor(5, 3) => 6
    ~ [bits]: ~a -- Every bit flipped, `-a - 1`. -- ~5 => -6
    << [bits]: a << n -- a times 2 to the n. Overflow is an error, as is an n below zero. -- 5 << 2 => 20
    >> [bits]: a >> n -- a divided by 2 to the n, rounded down; 0 for an n outside of 0 to 63. -- -5 >> 1 => -3
    bit_count(x: integer) -> int64 -- The number of ones among its 64 bits. -- bit_count(7) => 3
    gcd(a: integer, b: integer) -> int64 -- The greatest common divisor, not below zero. -- gcd(-12, 18) => 6
    lcm(a: integer, b: integer) -> int64 -- The least common multiple, not below zero; overflow is an error. -- lcm(4, 6) => 12 -- case when a is null or b is null then null when a = 0 or b = 0 then 0 else abs(a // gcd(a, b) * b) end
    bin(x: integer) -> string -- The binary digits of its 64 bits, from the first 1 on. -- bin(5) => '101'
    """,
    bits=rules.bits,
)
