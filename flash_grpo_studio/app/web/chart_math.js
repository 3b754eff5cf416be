// What a chart needs to know before it draws: scales, ticks, smoothing.

/** Steps of 1, 2 or 5 times a power of ten that cut a range into about `count` parts. */
export function ticks(low, high, count) {
  const raw = (high - low) / count || 1;
  const power = 10 ** Math.floor(Math.log10(raw));
  const step = power * [1, 2, 5, 10].find((factor) => factor * power >= raw * (1 - 1e-9));
  const found = [];
  const first = Math.ceil(low / step - 1e-9);
  for (let place = first; place * step <= high + step * 1e-9; place++) found.push(place * step || 0); // never -0
  return found;
}

/** Ticks of a logarithmic axis, given as values: whole powers of ten where the range has some, else finer ones. */
export function logTicks(bottom, top) {
  const powers = [];
  const stride = Math.max(1, Math.ceil((top - bottom) / 5));
  for (let power = Math.ceil(bottom); power <= top; power += stride) powers.push(10 ** power);
  return powers.length >= 2 ? powers : ticks(10 ** bottom, 10 ** top, 4).filter((value) => value > 0);
}

/** Digits after the point by which neighbouring ticks differ. */
export function digitsOf(marks) {
  if (marks.length < 2) return 3;
  const step = Math.abs(marks[1] - marks[0]);
  return Math.min(8, Math.max(0, Math.ceil(-Math.log10(step) - 1e-9)));
}

/** Exponential smoothing that starts unbiased; `amount` in 0..1, 0 changes nothing. */
export function smooth(values, amount) {
  let sum = 0;
  let weight = 0;
  return values.map((value) => {
    if (value === null) return null;
    sum = amount * sum + (1 - amount) * value;
    weight = amount * weight + (1 - amount);
    return sum / weight;
  });
}

/** The place of the number in a rising list that is nearest to `wanted`. */
export function nearest(rising, wanted) {
  let low = 0;
  let high = rising.length - 1;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (rising[middle] < wanted) low = middle + 1;
    else high = middle;
  }
  return low > 0 && wanted - rising[low - 1] < rising[low] - wanted ? low - 1 : low;
}

function extent(lines, usable) {
  const found = { first: Infinity, last: -Infinity, low: Infinity, high: -Infinity };
  for (const line of lines) {
    for (let place = 0; place < line.update.length; place++) {
      for (const values of [line.value, line.low, line.high]) {
        const value = values?.[place];
        if (value === undefined || !usable(value)) continue;
        found.first = Math.min(found.first, line.update[place]);
        found.last = Math.max(found.last, line.update[place]);
        found.low = Math.min(found.low, value);
        found.high = Math.max(found.high, value);
      }
    }
  }
  return found;
}

/** Where values lie in a picture of width x height; null without any value that can be drawn. */
export function frameOf(lines, { log = false, zero = false }, width, height, margin) {
  const usable = (value) => value !== null && Number.isFinite(value) && (!log || value > 0);
  let { first, last, low, high } = extent(lines, usable);
  if (low > high) return null;
  if (zero && !log) low = Math.min(0, low);
  const turn = log ? Math.log10 : (value) => value;
  let [bottom, top] = [turn(low), turn(high)];
  // A curve that is level up to rounding is drawn level, not as a storm in the last digit.
  const least = log ? 0.05 : Math.max(Math.abs(bottom), Math.abs(top)) * 1e-6 || 1;
  const room = Math.max((top - bottom) * 0.06, least);
  bottom -= zero && low === 0 ? 0 : room;
  top += room;
  if (first === last) last = first + 1;
  const inner = { width: width - margin.left - margin.right, height: height - margin.top - margin.bottom };
  return {
    width, height, first, last, bottom, top, log, usable,
    x: (update) => margin.left + ((update - first) / (last - first)) * inner.width,
    y: (value) => margin.top + (1 - (turn(value) - bottom) / (top - bottom)) * inner.height,
    at: (x) => first + ((x - margin.left) / inner.width) * (last - first),
  };
}
