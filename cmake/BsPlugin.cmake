# Of programs, built or installed, also after a move. A search path of the build's own would not do: CMake fills it up to the
# installed one's length with empty entries, which are the current directory.
set(BS_PROGRAM_RPATH "$ORIGIN/../${CMAKE_INSTALL_LIBDIR}")
if(NOT CMAKE_INSTALL_LIBDIR STREQUAL "lib")
  list(APPEND BS_PROGRAM_RPATH "$ORIGIN/../lib")
endif()

# bs_own_plugin(<id> SOURCES ... [LIBS ...] [DEFINES ...] [BUILTIN])
# One of our own plugins: lib/blockshock/plugins-0/bs_<id>.so, or linked into libblockshock when
# BUILTIN is given or BS_STATIC_PLUGINS is on. The same sources either way.
set(BS_PLUGIN_OUTPUT_DIR "${CMAKE_BINARY_DIR}/lib/blockshock/plugins-0")
function(bs_own_plugin id)
  cmake_parse_arguments(P "BUILTIN" "" "SOURCES;LIBS;DEFINES" ${ARGN})
  if(P_BUILTIN OR BS_STATIC_PLUGINS)
    add_library(bs_plugin_${id} OBJECT ${P_SOURCES})
    target_compile_definitions(bs_plugin_${id} PRIVATE BS_STATIC_QUERY=bs_plugin_query_static_${id})
    set_property(GLOBAL APPEND PROPERTY BS_BUILTIN_IDS ${id})
    set_property(GLOBAL APPEND PROPERTY BS_BUILTIN_LIBS ${P_LIBS})
  else()
    add_library(bs_plugin_${id} MODULE ${P_SOURCES})
    set_target_properties(bs_plugin_${id} PROPERTIES PREFIX "" OUTPUT_NAME bs_${id}
      LIBRARY_OUTPUT_DIRECTORY "${BS_PLUGIN_OUTPUT_DIR}" BUILD_WITH_INSTALL_RPATH ON INSTALL_RPATH "$ORIGIN")
    target_link_options(bs_plugin_${id} PRIVATE
      -Wl,--version-script=${CMAKE_SOURCE_DIR}/cmake/plugin.map -Wl,-z,nodelete ${BS_COMPRESS_DEBUG})
    if(NOT BS_SANITIZE)
      target_link_options(bs_plugin_${id} PRIVATE -Wl,-z,defs)
    endif()
    install(TARGETS bs_plugin_${id} LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}/blockshock/plugins-0)
    set_property(GLOBAL APPEND PROPERTY BS_PLUGIN_TARGETS bs_plugin_${id})
  endif()
  target_compile_definitions(bs_plugin_${id} PRIVATE BS_PLUGIN_VERSION="${BS_VERSION}" ${P_DEFINES})
  target_link_libraries(bs_plugin_${id} PRIVATE bs_options ${P_LIBS} ${CMAKE_DL_LIBS} m)
endfunction()
