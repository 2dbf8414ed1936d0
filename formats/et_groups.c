/* SPDX-License-Identifier: MIT
 * et_groups.c - the ranks of a trace's groups from a JSON file, as ASTRA-sim has them (et.h). */
#include <jansson.h>
#include <string.h>

#include "core/base/error.h"
#include "formats/et.h"

static int32_t wrong(const char *path, const char *name, const char *what, bs_error *err) {
  bs_error_set(err, BS_INPUT, "BS-ET-GROUP", "%.160s: group '%.40s': %s", path, name, what);
  bs_error_hint(err, "{\"1\": [0, 1], \"2\": [2, 3]}: the ranks of each group, in ascending order");
  return BS_INPUT;
}

static int32_t read_group(bs_et *et, const char *path, const char *name, const json_t *list, bs_error *err) {
  const size_t n = json_array_size(list);
  uint32_t index = 0;
  if (n == 0 || n > et->n_ranks) return wrong(path, name, "its ranks are no list of ranks of the trace", err);
  int32_t rc = bs_et_group_of(et, name, strlen(name), &index, err);
  if (rc != BS_OK) return rc;
  uint32_t *ranks = bs_arena_take(&et->texts, n, sizeof *ranks);
  if (ranks == NULL) return bs_error_set(err, BS_NO_MEMORY, "BS-MEM", "no memory for a group");
  for (size_t i = 0; i < n; i++) {
    const json_t *rank = json_array_get(list, i);
    const json_int_t value = json_integer_value(rank);
    if (!json_is_integer(rank) || value < 0 || value >= et->n_ranks ||
        (i > 0 && value <= (json_int_t)ranks[i - 1]))
      return wrong(path, name, "its ranks do not ascend, or one is not in the trace", err);
    ranks[i] = (uint32_t)value;
  }
  et->groups[index].ranks = ranks;
  et->groups[index].n = (uint32_t)n;
  return BS_OK;
}

int32_t bs_et_groups_read(bs_et *et, const char *path, bs_error *err) {
  json_error_t why;
  const char *name;
  json_t *list;
  int32_t rc = BS_OK;
  json_t *root = json_load_file(path, JSON_REJECT_DUPLICATES, &why);
  if (!json_is_object(root)) {
    bs_error_set(err, BS_INPUT, "BS-ET-GROUP", "%.160s: %s", path,
                 root == NULL ? why.text : "it is no JSON object");
    json_decref(root);
    return BS_INPUT;
  }
  json_object_foreach(root, name, list) {
    if (rc == BS_OK) rc = read_group(et, path, name, list, err);
  }
  json_decref(root);
  return rc;
}
