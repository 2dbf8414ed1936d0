/* SPDX-License-Identifier: MIT
 * search.c - where plugins come from, in order of precedence: --plugin paths, BS_PLUGIN_PATH, the
 * configuration's folders, <libdir>/blockshock/plugins-0 next to the library, the built-ins. Never the
 * current directory, never a bare name. Called once by bs_context_open. */
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/base/text.h"
#include "core/plugin/accept.h"
#include "core/plugin/builtin.h"
#include "core/plugin/plugins.h"
#include "core/plugin/trust.h"

static int32_t no_memory(bs_error *err) {
  return bs_error_set(err, BS_NO_MEMORY, "BS-PLG-MEMORY", "no memory for the list of plugins");
}

static int compare_names(const void *a, const void *b) {
  return strcmp(*(char *const *)a, *(char *const *)b);
}

static int is_plugin_name(const char *name) {
  size_t n = strlen(name);
  return n > 6 && strncmp(name, "bs_", 3) == 0 && strcmp(name + n - 3, ".so") == 0;
}

/* The sorted bs_*.so names of a folder; readdir's order is not stable. */
static int32_t list_names(const char *dir, bs_list *out_names, bs_error *err) {
  DIR *d = opendir(dir);
  int32_t rc = BS_OK;
  if (d == NULL)
    return bs_error_errno(err, BS_PLUGIN, "BS-PLG-PATH", errno, "cannot read the folder %s", dir);
  for (;;) {
    errno = 0;
    const struct dirent *e = readdir(d);
    if (e == NULL) {
      if (errno != 0)
        rc = bs_error_errno(err, BS_PLUGIN, "BS-PLG-PATH", errno, "cannot read the folder %s", dir);
      break;
    }
    if (!is_plugin_name(e->d_name)) continue;
    char *name = bs_strdup(e->d_name);
    if (name == NULL || !bs_list_push(out_names, name)) {
      free(name);
      rc = no_memory(err);
      break;
    }
  }
  closedir(d);
  if (out_names->count > 1)
    qsort(out_names->items, out_names->count, sizeof out_names->items[0], compare_names);
  return rc;
}

void bs_place_free(bs_place *place) {
  if (place == NULL) return;
  free(place->origin);
  free(place->path);
  free(place->real);
  free(place);
}

static bs_place *place_new(bs_context *context, const char *path, const char *origin) {
  bs_place *place = calloc(1, sizeof *place);
  if (place == NULL) return NULL;
  bs_error_clear(&place->failure);
  place->path = bs_strdup(path);
  place->origin = bs_strdup(origin);
  if (place->path != NULL && place->origin != NULL && bs_list_push(&context->places, place)) return place;
  bs_place_free(place);
  return NULL;
}

/* A row and a warning for a search element that is itself wrong. */
static int32_t refuse_element(bs_context *context, bs_place *place, const bs_error *why, bs_error *err) {
  const char *origin = place->origin;
  bs_plugin_self *p = bs_plugin_new(context, place->path, origin);
  free(place->real);
  place->real = NULL;
  place->failure = *why;
  if (p == NULL) return no_memory(err);
  bs_plugin_refuse(p, BS_PLUGIN_REFUSED, why);
  bs_log_write(&context->logger, BS_LOG_WARN, "", -1, "%s: %s", origin, why->message);
  return BS_OK;
}

static int32_t add_file(bs_context *context, const char *path, const char *origin, int by_path, int own,
                        bs_plugin_self **out_plugin, bs_error *err) {
  const char *slash = strrchr(path, '/');
  bs_plugin_self *p = bs_plugin_new(context, path, origin);
  if (p == NULL) return no_memory(err);
  p->by_path = (uint32_t)by_path;
  p->own_folder = (uint32_t)own;
  bs_file_examine(p, slash != NULL ? slash + 1 : path);
  if (out_plugin != NULL) *out_plugin = p;
  return BS_OK;
}

static const bs_place *already_scanned(const bs_context *context, const char *real) {
  for (uint32_t i = 0; i < context->places.count; i++) {
    const bs_place *place = context->places.items[i];
    if (place->real != NULL && strcmp(place->real, real) == 0) return place;
  }
  return NULL;
}

static int32_t scan_names(bs_context *context, const char *dir, const char *origin, int own,
                          const bs_list *names, bs_error *err) {
  int32_t rc = BS_OK;
  for (uint32_t i = 0; i < names->count && rc == BS_OK; i++) {
    bs_text path = {0};
    bs_text_printf(&path, "%s%s%s", dir, dir[strlen(dir) - 1] == '/' ? "" : "/", (char *)names->items[i]);
    rc = path.failed ? no_memory(err) : add_file(context, path.data, origin, 0, own, NULL, err);
    bs_text_free(&path);
  }
  return rc;
}

static int32_t scan_place(bs_context *context, bs_place *place, int own, bs_error *err) {
  bs_error why = BS_ERROR_INIT;
  bs_list names = {0};
  int32_t rc = list_names(place->real, &names, &why);
  place->files = names.count;
  if (rc == BS_NO_MEMORY)
    *err = why;
  else if (rc != BS_OK)
    rc = refuse_element(context, place, &why, err);
  else
    rc = scan_names(context, own ? place->real : place->path, place->origin, own, &names, err);
  for (uint32_t i = 0; i < names.count; i++) free(names.items[i]);
  bs_list_free(&names);
  return rc;
}

/* own: our own folder, which may be absent. */
static int32_t scan_dir(bs_context *context, const char *dir, const char *origin, int own, bs_error *err) {
  bs_error why = BS_ERROR_INIT;
  bs_place *place = place_new(context, dir, origin);
  if (place == NULL) return no_memory(err);
  if (dir[0] != '/') {
    bs_error_set(&why, BS_PLUGIN, "BS-PLG-PATH", "%s '%s' is refused: only absolute folders are searched",
                 dir[0] == '\0' ? "empty element" : "relative path", dir);
    return refuse_element(context, place, &why, err);
  }
  char *real = realpath(dir, NULL);
  if (real == NULL) {
    const int absent = errno == ENOENT;
    bs_error_errno(&why, BS_PLUGIN, "BS-PLG-PATH", errno, "cannot search the folder %s", dir);
    place->failure = why;
    return own && absent ? BS_OK : refuse_element(context, place, &why, err);
  }
  const bs_place *other = already_scanned(context, real);
  if (other != NULL) {
    bs_error_set(&place->failure, BS_PLUGIN, "BS-PLG-DUP", "the same folder as %s", other->origin);
    free(real);
    return BS_OK;
  }
  place->real = real;
  return scan_place(context, place, own, err);
}

/* secure_getenv: a set-uid program ignores the variable. Set but empty means none. */
static int32_t scan_environment(bs_context *context, bs_error *err) {
  const char *value = secure_getenv("BS_PLUGIN_PATH");
  int32_t rc = BS_OK;
  if (value == NULL || *value == '\0') return BS_OK;
  char *copy = bs_strdup(value);
  if (copy == NULL) return no_memory(err);
  char *at = copy;
  for (uint32_t i = 0; at != NULL && rc == BS_OK; i++) {
    char origin[40];
    char *element = strsep(&at, ":");
    snprintf(origin, sizeof origin, "BS_PLUGIN_PATH[%u]", i);
    rc = scan_dir(context, element, origin, 0, err);
  }
  free(copy);
  return rc;
}

/* The file that this code was loaded from. The dynamic loader keeps a relative name as it was given, which is
 * nothing once the process has changed its folder; the kernel knows the whole of it. */
static void library_path(char *out, size_t size) {
  Dl_info info;
  char *line = NULL;
  size_t room = 0;
  out[0] = '\0';
  if (dladdr(bs_builtin_queries, &info) != 0 && info.dli_fname != NULL && info.dli_fname[0] == '/') {
    snprintf(out, size, "%s", info.dli_fname);
    return;
  }
  FILE *maps = fopen("/proc/self/maps", "re");
  while (maps != NULL && out[0] == '\0' && getline(&line, &room, maps) > 0) {
    const char *slash = strchr(line, '/');
    char *dash = NULL;
    const unsigned long begin = strtoul(line, &dash, 16);
    if (slash == NULL || *dash != '-') continue;
    const unsigned long end = strtoul(dash + 1, NULL, 16);
    if ((uintptr_t)bs_builtin_queries >= begin && (uintptr_t)bs_builtin_queries < end)
      snprintf(out, size, "%.*s", (int)strcspn(slash, "\n"), slash);
  }
  free(line);
  if (maps != NULL) fclose(maps);
}

static int32_t scan_own_folder(bs_context *context, bs_error *err) {
  char library[PATH_MAX];
  bs_text dir = {0};
  library_path(library, sizeof library);
  if (!bs_trust_base_of(library, &context->base)) return BS_OK;
  bs_text_printf(&dir, "%s/blockshock/plugins-%u", context->base.root, BS_ABI_MAJOR);
  int32_t rc = dir.failed ? no_memory(err) : scan_dir(context, dir.data, "the library's folder", 1, err);
  bs_text_free(&dir);
  return rc;
}

static int32_t add_builtins(bs_context *context, bs_error *err) {
  for (const bs_plugin_query_fn *query = bs_builtin_queries; *query != NULL; query++) {
    bs_error why = BS_ERROR_INIT;
    bs_plugin_self *p = bs_plugin_new(context, "", "built in");
    if (p == NULL) return no_memory(err);
    p->builtin = 1;
    p->query = *query;
    int32_t rc = bs_load_desc(p, (*query)(BS_ABI_VERSION, 0), &why);
    if (rc != BS_OK) bs_plugin_refuse(p, BS_PLUGIN_REFUSED, &why);
    for (uint32_t i = 0; rc == BS_OK && bs_plugin_at(context, i) != p; i++) {
      const bs_plugin_self *other = bs_plugin_at(context, i);
      if (other->state != BS_PLUGIN_FOUND || strcmp(other->id, p->id) != 0) continue;
      bs_error_set(&why, BS_PLUGIN, "BS-PLG-DUP", "shadowed by %s (%s)", other->path, other->origin);
      bs_plugin_refuse(p, BS_PLUGIN_SHADOWED, &why);
      break;
    }
  }
  return BS_OK;
}

static int32_t add_paths(bs_context *context, const bs_context_options *options, bs_error *err) {
  for (uint32_t i = 0; i < options->n_plugins; i++) {
    bs_plugin_self *p = NULL;
    if (strchr(options->plugins[i], '/') == NULL) continue;
    int32_t rc = add_file(context, options->plugins[i], "--plugin", 1, 0, &p, err);
    if (rc != BS_OK) return rc;
    p->named = p->state == BS_PLUGIN_FOUND;
    for (uint32_t j = 0; p->state == BS_PLUGIN_SHADOWED && bs_plugin_at(context, j) != p; j++) {
      const bs_plugin_self *other = bs_plugin_at(context, j);
      if (other->dev == p->dev && other->ino == p->ino && other->state == BS_PLUGIN_FOUND) {
        context->plugins.count--; /* the same file named twice: one row */
        bs_plugin_free(p);
        p = NULL;
        break;
      }
    }
    if (p != NULL && p->state != BS_PLUGIN_FOUND) {
      if (err != NULL) *err = p->failure;
      return p->failure.code;
    }
  }
  return BS_OK;
}

int32_t bs_search_unknown(const bs_context *context, const char *id, bs_error *err) {
  const char *known[256];
  uint32_t n = 0;
  for (uint32_t i = 0; i < context->plugins.count && n < 256; i++) {
    const bs_plugin_self *p = bs_plugin_at(context, i);
    if (p->state == BS_PLUGIN_FOUND) known[n++] = p->id;
  }
  const char *near = bs_nearest(id, known, n);
  bs_error_set(err, BS_NOT_FOUND, "BS-PLG-NOTFOUND", "no plugin '%s' among %u found", id, n);
  if (near != NULL)
    bs_error_hint(err, "did you mean '%s'? A file is named by a path with a slash", near);
  else
    bs_error_hint(err, "bsrun plugins list shows all; a file is named by a path with a slash");
  return BS_NOT_FOUND;
}

/* A plugin named by id must exist and be usable. A usable one that follows a refused one is taken, with a
 * warning. */
static int32_t mark_named(bs_context *context, const char *id, bs_error *err) {
  const bs_plugin_self *refused = NULL;
  for (uint32_t i = 0; i < context->plugins.count; i++) {
    bs_plugin_self *p = bs_plugin_at(context, i);
    if (strcmp(p->id, id) != 0) continue;
    if (p->state == BS_PLUGIN_FOUND) {
      p->named = 1;
      if (refused != NULL)
        bs_log_write(&context->logger, BS_LOG_WARN, "", -1, "%s: %s; using %s", refused->path,
                     refused->failure.message, p->builtin ? "the built-in" : p->path);
      return BS_OK;
    }
    if (p->state == BS_PLUGIN_REFUSED && refused == NULL) refused = p;
  }
  if (refused == NULL) return bs_search_unknown(context, id, err);
  if (err != NULL) *err = refused->failure;
  return refused->failure.code;
}

int32_t bs_search(bs_context *context, const bs_context_options *options, bs_error *err) {
  int32_t rc = add_paths(context, options, err);
  if (rc == BS_OK) rc = scan_environment(context, err);
  for (uint32_t i = 0; rc == BS_OK && i < options->n_plugin_dirs; i++) {
    char origin[40];
    snprintf(origin, sizeof origin, "config[%u]", i);
    rc = scan_dir(context, options->plugin_dirs[i], origin, 0, err);
  }
  if (rc == BS_OK) rc = scan_own_folder(context, err);
  if (rc == BS_OK) rc = add_builtins(context, err);
  for (uint32_t i = 0; rc == BS_OK && i < options->n_plugins; i++)
    if (strchr(options->plugins[i], '/') == NULL) rc = mark_named(context, options->plugins[i], err);
  return rc;
}
