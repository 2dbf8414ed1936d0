/* SPDX-License-Identifier: MIT
 * env_host.c - parts of env.json that describe the machine and this process: the map of cores, the libraries
 * as loaded, the command line, and the time that other guests of the machine took. */
#include <dirent.h>
#include <dlfcn.h>
#include <elf.h>
#include <fcntl.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/personality.h>
#include <unistd.h>

#include "lab/store/env.h"
#include "lab/store/env_parts.h"

json_t *bs_env_argv(void) {
  char text[65536];
  json_t *list = json_array();
  const int fd = open("/proc/self/cmdline", O_RDONLY | O_CLOEXEC);
  const ssize_t size = fd < 0 ? 0 : read(fd, text, sizeof text - 1);
  if (fd >= 0) close(fd);
  if (size <= 0) return list;
  text[size] = '\0';
  for (const char *word = text; word < text + size; word += strlen(word) + 1)
    json_array_append_new(list, bs_env_string(word));
  return list;
}

/* "cpu user nice system idle iowait irq softirq steal ...", of all processors together. */
uint64_t bs_env_process_start(long pid) {
  char path[48], line[1024];
  snprintf(path, sizeof path, "/proc/%ld/stat", pid);
  const char *end = bs_env_first_line(path, line, sizeof line) ? strrchr(line, ')') : NULL;
  for (int field = 2; end != NULL && field < 22; field++) end = strchr(end + 1, ' ');
  return end != NULL ? strtoull(end + 1, NULL, 10) : 0;
}

uint64_t bs_env_steal(void) {
  char line[512];
  uint64_t steal = 0;
  char *at = bs_env_first_line("/proc/stat", line, sizeof line) ? line + strcspn(line, " ") : NULL;
  for (int field = 1; at != NULL && field <= 8; field++) {
    char *end;
    steal = strtoull(at, &end, 10);
    at = end == at ? NULL : end;
  }
  return at != NULL ? steal : 0;
}

json_t *bs_env_after(uint64_t steal_before) {
  char line[128];
  const uint64_t steal = bs_env_steal();
  const double ticks = (double)(steal > steal_before ? steal - steal_before : 0);
  json_t *load = bs_env_first_line("/proc/loadavg", line, sizeof line) ? bs_env_string(line) : json_null();
  return json_pack("{s:o, s:f}", "load_average", load, "stolen_s", ticks / (double)sysconf(_SC_CLK_TCK));
}

static long number_in(const char *folder, const char *name) {
  char path[160], line[32];
  snprintf(path, sizeof path, "%s/%s", folder, name);
  return bs_env_first_line(path, line, sizeof line) ? strtol(line, NULL, 10) : -1;
}

/* Finds "node3" in the processor's folder; -1: the kernel has no nodes. */
static long node_of(const char *folder) {
  long node = -1;
  DIR *dir = opendir(folder);
  const struct dirent *entry;
  while (dir != NULL && node < 0 && (entry = readdir(dir)) != NULL)
    if (strncmp(entry->d_name, "node", 4) == 0 && entry->d_name[4] >= '0' && entry->d_name[4] <= '9')
      node = strtol(entry->d_name + 4, NULL, 10);
  if (dir != NULL) closedir(dir);
  return node;
}

json_t *bs_env_core_map(void) {
  const long n = sysconf(_SC_NPROCESSORS_CONF);
  json_t *map = json_array();
  for (long cpu = 0; cpu < n; cpu++) {
    char folder[96];
    snprintf(folder, sizeof folder, "/sys/devices/system/cpu/cpu%ld", cpu);
    const long core = number_in(folder, "topology/core_id");
    if (core < 0) continue; /* not online */
    json_array_append_new(
        map, json_pack("[i,i,i,i]", (int)cpu, (int)core,
                       (int)number_in(folder, "topology/physical_package_id"), (int)node_of(folder)));
  }
  return map;
}

json_t *bs_env_aslr(void) {
  const int own = personality(0xffffffff);
  const long level = number_in("/proc/sys/kernel", "randomize_va_space");
  if (own != -1 && (own & ADDR_NO_RANDOMIZE) != 0) return json_string("off for this process");
  return level < 0 ? json_null() : json_string(level == 0 ? "off" : level == 1 ? "without heap" : "on");
}

/* The GNU build id in a library's notes as hex digits; "": it has none. */
static void build_id(const struct dl_phdr_info *info, char *out, size_t size) {
  out[0] = '\0';
  for (size_t i = 0; i < info->dlpi_phnum; i++) {
    const ElfW(Phdr) *p = &info->dlpi_phdr[i];
    const char *at = (const char *)(uintptr_t)(info->dlpi_addr + p->p_vaddr), *end = at + p->p_memsz;
    if (p->p_type != PT_NOTE) continue;
    while (at + sizeof(ElfW(Nhdr)) <= end) {
      const ElfW(Nhdr) *note = (const ElfW(Nhdr) *)(const void *)at;
      const char *name = at + sizeof *note, *value = name + ((note->n_namesz + 3u) & ~3u);
      if (note->n_type == NT_GNU_BUILD_ID && note->n_namesz == 4 && value + note->n_descsz <= end) {
        for (size_t k = 0; k < note->n_descsz && 2 * k + 2 < size; k++)
          snprintf(out + 2 * k, size - 2 * k, "%02x", (unsigned char)value[k]);
        return;
      }
      at = value + ((note->n_descsz + 3u) & ~3u);
    }
  }
}

static int add_library(struct dl_phdr_info *info, size_t size, void *user) {
  json_t *list = user;
  char id[65];
  (void)size;
  if (info->dlpi_name == NULL || strchr(info->dlpi_name, '/') == NULL) return 0; /* bsrun, the vdso */
  build_id(info, id, sizeof id);
  json_t *row = json_pack("{s:o, s:o}", "path", bs_env_string(info->dlpi_name), "build_id",
                          id[0] != '\0' ? json_string(id) : json_null());
  json_array_append_new(list, row);
  return 0;
}

json_t *bs_env_libraries(void) {
  json_t *list = json_array();
  if (list != NULL) dl_iterate_phdr(add_library, list);
  return list;
}

json_t *bs_env_mpi(const json_t *libraries) {
  for (size_t i = 0; i < json_array_size(libraries); i++) {
    const char *path = json_string_value(json_object_get(json_array_get(libraries, i), "path"));
    if (path == NULL || strstr(path, "/libmpi.so") == NULL) continue;
    void *library = dlopen(path, RTLD_NOW | RTLD_NOLOAD);
    if (library == NULL) continue;
    char text[8192] = ""; /* the longest version text of any MPI */
    int length = 0;
    int (*version)(char *, int *);
    *(void **)&version = dlsym(library, "MPI_Get_library_version");
    const int known = version != NULL && version(text, &length) == 0;
    dlclose(library); /* the count of references, not the library */
    text[strcspn(text, "\n")] = '\0';
    if (known) return bs_env_string(text);
  }
  return json_null();
}
