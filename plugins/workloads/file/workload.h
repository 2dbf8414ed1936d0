/* SPDX-License-Identifier: MIT
 * workload.h - the vtable functions of the workload "file". Internal to this plugin. */
#ifndef BS_WORKLOADS_FILE_WORKLOAD_H
#define BS_WORKLOADS_FILE_WORKLOAD_H
#include "file.h"

int32_t bs_file_open(void *state, const bs_workload_request *request, void **out, bs_error *err);
int32_t bs_file_info(void *workload, bs_workload_info *out_info, bs_error *err);
int32_t bs_file_source(void *workload, uint32_t part, bs_source *out_source, bs_error *err);
void bs_file_close(void *workload);
#endif
