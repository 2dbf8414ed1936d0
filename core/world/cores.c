/* SPDX-License-Identifier: MIT
 *
 * cores.c - the cores that this process may use, in an order whose equal shares lie together: hwloc's, in
 * which the threads of a core and the cores of a cache follow each other. The kernel's numbers do not: on
 * many machines the second half of them are the second threads of the cores of the first, and two ranks would
 * share every core.
 */
#include <pthread.h>
#include <stdlib.h>

#include "core/base/error.h"
#include "core/world/world.h"

#if defined(BS_HAVE_HWLOC)
#include <hwloc.h>

/* Place of each core in hwloc's order, from 1; 0: not known. Read once a process: it costs milliseconds. */
static uint16_t place[CPU_SETSIZE];
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void read_topology(void) {
  hwloc_topology_t t;
  if (hwloc_topology_init(&t) != 0) return;
  if (hwloc_topology_load(t) == 0) {
    const int n = hwloc_get_nbobjs_by_type(t, HWLOC_OBJ_PU);
    for (int i = 0; i < n && i < CPU_SETSIZE; ++i) {
      const unsigned os = hwloc_get_obj_by_type(t, HWLOC_OBJ_PU, (unsigned)i)->os_index;
      if (os < CPU_SETSIZE) place[os] = (uint16_t)(i + 1);
    }
  }
  hwloc_topology_destroy(t);
}

static int by_place(const void *a, const void *b) {
  const uint16_t x = *(const uint16_t *)a, y = *(const uint16_t *)b;
  if (place[x] != place[y]) return place[x] < place[y] ? -1 : 1;
  return x < y ? -1 : x > y;
}

static void order(uint16_t *cores, uint32_t n) {
  pthread_once(&once, read_topology);
  qsort(cores, n, sizeof *cores, by_place);
}
#else
static void order(uint16_t *cores, uint32_t n) {
  (void)cores;
  (void)n;
}
#endif

int32_t bs_world_find_cores(bs_world *world, bs_error *err) {
  cpu_set_t set;
  CPU_ZERO(&set);
  world->cores = calloc(CPU_SETSIZE, sizeof *world->cores);
  if (world->cores == NULL)
    return bs_error_set(err, BS_NO_MEMORY, "BS-WORLD-MEMORY", "no memory for a list of cores");
  if (sched_getaffinity(0, sizeof set, &set) == 0) {
    for (int c = 0; c < CPU_SETSIZE; ++c)
      if (CPU_ISSET(c, &set)) world->cores[world->ncores++] = (uint16_t)c;
  }
  world->cores_known = world->ncores > 0;
  if (world->ncores == 0) world->ncores = 1; /* unknown: act as on one core, never pin */
  if (world->cores_known) order(world->cores, world->ncores);
  return BS_OK;
}
