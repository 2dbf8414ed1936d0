# CUDA: nvcc and cuda.h, of the toolkit (BS_CUDA_ROOT, CUDA_HOME, CUDA_PATH, nvcc of PATH, /usr/local/cuda) or of NVIDIA's
# Python packages, which scripts/setup lays into .deps/cuda. The driver's library is opened at run time by the plugin.
# BS_CUDA=AUTO looks for them only where a GPU is.
# nvcc takes a C++ compiler for its preprocessor (Debian: g++ of build-essential), also where all else is built by clang.
# BS_CUDA_FOUND, BS_CUDA_NVCC, BS_CUDA_INCLUDE_DIR, BS_CUDA_VERSION; BS_CUDA_WHY where it is not to be had.
set(BS_CUDA_FOUND OFF)
set(BS_CUDA_MIN 12.0)

# 1 in out when nvcc compiles a kernel; else what it said is in BS_CUDA_WHY.
function(bs_cuda_try nvcc out)
  set(dir "${CMAKE_BINARY_DIR}/CMakeFiles/BsCuda")
  list(GET BS_CUDA_ARCHS 0 arch)
  string(REGEX REPLACE "^compute_" "" arch "${arch}")
  file(WRITE "${dir}/try.cu" "extern \"C\" __global__ void try_one(float *p) { p[threadIdx.x] = 1.0f; }\n")
  execute_process(COMMAND "${nvcc}" ${BS_CUDA_CCBIN} -gencode=arch=compute_${arch},code=sm_${arch} -cubin -o try.cubin
    try.cu WORKING_DIRECTORY "${dir}" RESULT_VARIABLE rc OUTPUT_VARIABLE text ERROR_VARIABLE text)
  if(rc EQUAL 0)
    set(${out} 1 PARENT_SCOPE)
  else()
    string(REGEX REPLACE "\n.*" "" text "${text}")
    set(${out} 0 PARENT_SCOPE)
    set(BS_CUDA_WHY "${nvcc} does not compile: ${text}" PARENT_SCOPE)
  endif()
endfunction()

string(TOUPPER "${BS_CUDA}" BS_CUDA_WORD)
if(BS_CUDA_WORD STREQUAL "AUTO" AND NOT EXISTS /dev/nvidiactl AND NOT EXISTS /dev/dxg) # /dev/dxg is a GPU's in WSL
  set(BS_CUDA_WHY "no GPU here; -DBS_CUDA=ON builds the cuda plugin all the same")
elseif(BS_CUDA_WORD MATCHES "^(AUTO|REQUIRED)$" OR BS_CUDA)
  set(BS_CUDA_CCBIN "")
  if(BS_CUDA_HOST_COMPILER)
    set(BS_CUDA_CCBIN "-ccbin=${BS_CUDA_HOST_COMPILER}")
  endif()
  set(BS_CUDA_WHY "no nvcc")
  find_program(BS_CUDA_NVCC nvcc HINTS "${BS_CUDA_ROOT}" "$ENV{CUDA_HOME}" "$ENV{CUDA_PATH}" "${BS_DEPS_DIR}/cuda"
    PATHS /usr/local/cuda PATH_SUFFIXES bin)
  if(BS_CUDA_NVCC)
    # What is in PATH may be a script or a link: nvcc itself tells where its toolkit lies.
    execute_process(COMMAND "${BS_CUDA_NVCC}" --dryrun nothing.cu OUTPUT_VARIABLE text ERROR_VARIABLE text)
    string(REGEX MATCH "TOP=([^\n]*)" found "${text}")
    get_filename_component(BS_CUDA_TOP "${CMAKE_MATCH_1}" REALPATH)
    set(BS_CUDA_WHY "no cuda.h beside ${BS_CUDA_NVCC}")
    find_path(BS_CUDA_INCLUDE_DIR cuda.h HINTS "${BS_CUDA_TOP}/include" "${BS_CUDA_TOP}/targets/x86_64-linux/include"
      "${BS_CUDA_TOP}/targets/sbsa-linux/include")
  endif()
  if(BS_CUDA_NVCC AND BS_CUDA_INCLUDE_DIR)
    file(STRINGS "${BS_CUDA_INCLUDE_DIR}/cuda.h" line REGEX "^#define CUDA_VERSION +[0-9]+" LIMIT_COUNT 1)
    string(REGEX REPLACE "[^0-9]" "" number "${line}")
    math(EXPR major "${number} / 1000")
    math(EXPR minor "${number} % 1000 / 10")
    set(BS_CUDA_VERSION "${major}.${minor}")
    if(BS_CUDA_VERSION VERSION_LESS BS_CUDA_MIN)
      set(BS_CUDA_WHY "CUDA ${BS_CUDA_VERSION} is older than ${BS_CUDA_MIN}")
    else()
      bs_cuda_try("${BS_CUDA_NVCC}" works)
      if(works)
        set(BS_CUDA_FOUND ON)
      endif()
    endif()
  endif()
  # cuBLASLt's header: its products are built where the toolkit has it (the library is opened at run time).
  set(BS_CUDA_LT OFF)
  if(BS_CUDA_FOUND AND EXISTS "${BS_CUDA_INCLUDE_DIR}/cublasLt.h")
    set(BS_CUDA_LT ON)
  endif()
  if(BS_CUDA_WORD STREQUAL "REQUIRED" AND NOT BS_CUDA_FOUND)
    message(FATAL_ERROR "CUDA is required (BS_CUDA=REQUIRED): ${BS_CUDA_WHY}. scripts/setup fetches NVIDIA's packages.")
  endif()
endif()

# Of an entry of BS_CUDA_ARCHS: 90a is code for sm_90a, compute_80 is PTX, which the driver compiles for later devices.
function(bs_cuda_arch entry out_code out_number out_kind)
  string(REGEX REPLACE "^compute_" "" number "${entry}")
  if(NOT number MATCHES "^[0-9]+[af]?$")
    message(FATAL_ERROR "BS_CUDA_ARCHS holds '${entry}'; entries are like 90a (code) or compute_80 (PTX)")
  endif()
  set(${out_number} "${number}" PARENT_SCOPE)
  if(entry MATCHES "^compute_")
    set(${out_code} "compute_${number}" PARENT_SCOPE)
    set(${out_kind} ptx PARENT_SCOPE)
  else()
    set(${out_code} "sm_${number}" PARENT_SCOPE)
    set(${out_kind} cubin PARENT_SCOPE)
  endif()
endfunction()

# BS_CUDA_CODE: the folder plugins/cuda/code of another build, whose cubins are taken where they are of the same sources.
set(BS_CUDA_CODE "" CACHE PATH "Cubins of another build of this tree, taken where nothing differs")

# bs_cuda_images(<out> <source.cu>...): compiles each file for each of BS_CUDA_ARCHS, with what ptxas says kept beside the
# cubin (NAME.log), and names in <out> a C file that holds them all and the tables of plugins/cuda/image.h.
function(bs_cuda_images out)
  set(dir "${CMAKE_CURRENT_BINARY_DIR}/code")
  set(tables "#include \"image.h\"\n\n")
  set(rows "")
  set(images "")
  set(count 0)
  foreach(source IN LISTS ARGN)
    get_filename_component(name "${source}" NAME_WE)
    set(cubins "")
    set(parts "")
    foreach(arch IN LISTS BS_CUDA_ARCHS)
      bs_cuda_arch("${arch}" code number kind)
      set(cubin "${dir}/${code}/${name}.${kind}")
      file(MAKE_DIRECTORY "${dir}/${code}")
      set(from "")
      if(BS_CUDA_CODE)
        set(from "${BS_CUDA_CODE}/${code}/${name}.${kind}")
      endif()
      add_custom_command(OUTPUT "${cubin}" BYPRODUCTS "${dir}/${code}/${name}.log"
        COMMAND "${CMAKE_COMMAND}" "-DNVCC=${BS_CUDA_NVCC}" "-DCCBIN=${BS_CUDA_CCBIN}" -DARCH=${arch} "-DSOURCE=${source}"
          "-DOUT=${cubin}" "-DINCLUDE=${CMAKE_SOURCE_DIR}/include" "-DFROM=${from}" -P "${CMAKE_SOURCE_DIR}/cmake/BsCudaCompile.cmake"
        DEPENDS "${source}" "${CMAKE_SOURCE_DIR}/cmake/BsCudaCompile.cmake" DEPFILE "${cubin}.d"
        COMMENT "Building CUDA code ${code}/${name}.${kind}" VERBATIM)
      list(APPEND cubins "${cubin}")
      string(REPLACE cubin elf part "${kind}")
      list(APPEND parts "--image3=kind=${part},sm=${number},file=${cubin}")
    endforeach()
    list(LENGTH cubins n)
    set(image "${cubins}")
    if(n GREATER 1)
      set(image "${dir}/${name}.fatbin")
      add_custom_command(OUTPUT "${image}" COMMAND "${BS_CUDA_TOP}/bin/fatbinary" --64 --create=${image} --compress=false ${parts}
        DEPENDS ${cubins} VERBATIM)
    endif()
    string(APPEND tables "extern const unsigned char cuda_code_${count}[], cuda_code_${count}_end[] __attribute__((visibility(\"hidden\")));\n"
      "__asm__(\".pushsection .rodata\\n.balign 64\\n.hidden cuda_code_${count}\\n.globl cuda_code_${count}\\n\"\n"
      "        \".hidden cuda_code_${count}_end\\n.globl cuda_code_${count}_end\\n\"\n"
      "        \"cuda_code_${count}:\\n.incbin \\\"${image}\\\"\\ncuda_code_${count}_end:\\n.byte 0\\n.popsection\");\n")
    string(APPEND rows "    {\"${name}\", cuda_code_${count}, cuda_code_${count}_end},\n")
    list(APPEND images "${image}")
    math(EXPR count "${count} + 1")
  endforeach()
  string(APPEND tables "\nconst cuda_image cuda_images[] = {\n${rows}    {0, 0, 0},\n};\n"
    "const uint32_t cuda_image_count = ${count};\n"
    "_Static_assert(${count} <= CUDA_IMAGES_MAX, \"raise CUDA_IMAGES_MAX\");\nconst cuda_arch cuda_archs[] = {\n")
  set(n 0)
  foreach(arch IN LISTS BS_CUDA_ARCHS)
    bs_cuda_arch("${arch}" code number kind)
    string(REGEX REPLACE "[^0-9]" "" capability "${arch}")
    set(reach CUDA_REACH_MAJOR)
    if(arch MATCHES "a$")
      set(reach CUDA_REACH_EXACT)
    elseif(kind STREQUAL "ptx")
      set(reach CUDA_REACH_UP)
    endif()
    string(APPEND tables "    {\"${code}\", ${capability}, ${reach}},\n")
    math(EXPR n "${n} + 1")
  endforeach()
  string(APPEND tables "};\nconst uint32_t cuda_arch_count = ${n};\n")
  file(CONFIGURE OUTPUT "${dir}/version" CONTENT "${BS_CUDA_VERSION}\n")
  file(CONFIGURE OUTPUT "${dir}/images.c" CONTENT "/* Written by cmake/BsCuda.cmake. */\n${tables}" @ONLY)
  set_source_files_properties("${dir}/images.c" PROPERTIES OBJECT_DEPENDS "${images}"
    INCLUDE_DIRECTORIES "${CMAKE_SOURCE_DIR}/plugins/cuda")
  set(${out} "${dir}/images.c" PARENT_SCOPE)
endfunction()
