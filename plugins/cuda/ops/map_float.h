/* SPDX-License-Identifier: MIT
 * map_float.h - the steps of programs that f32 and f64 write alike: included where map_number is one of them.
 */
#ifndef BS_PLUGIN_CUDA_MAP_FLOAT_H
#define BS_PLUGIN_CUDA_MAP_FLOAT_H
CUDA_FN map_number map_neg(map_number x) {
  return -x;
}
CUDA_FN map_number map_sign(map_number x) {
  return x > 0 ? 1 : x < 0 ? -1 : x == 0 ? 0 : x;
}
CUDA_FN map_number map_add(map_number x, map_number y) {
  return x + y;
}
CUDA_FN map_number map_sub(map_number x, map_number y) {
  return x - y;
}
CUDA_FN map_number map_mul(map_number x, map_number y) {
  return x * y;
}
CUDA_FN map_number map_min(map_number x, map_number y) {
  return x < y || x != x ? x : y;
}
CUDA_FN map_number map_max(map_number x, map_number y) {
  return x > y || x != x ? x : y;
}
CUDA_FN map_number map_and(map_number x, map_number y) {
  return x != 0 && y != 0;
}
CUDA_FN map_number map_or(map_number x, map_number y) {
  return x != 0 || y != 0;
}
CUDA_FN map_number map_xor(map_number x, map_number y) {
  return (x != 0) != (y != 0);
}
#endif
