# Headers under blockshock/, pkg-config files, the CMake package, configs; oneDNN beside the plugins when
# it came from the wheels (a system's own oneDNN is left where it is).
install(DIRECTORY "${CMAKE_SOURCE_DIR}/include/blockshock" DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}
        FILES_MATCHING PATTERN "*.h")
install(DIRECTORY "${CMAKE_SOURCE_DIR}/examples" DESTINATION ${CMAKE_INSTALL_DATADIR}/doc/blockshock
  FILES_MATCHING PATTERN "*.c" PATTERN "*.md" PATTERN Makefile)
install(PROGRAMS "${CMAKE_SOURCE_DIR}/tools/bs-export" DESTINATION ${CMAKE_INSTALL_BINDIR})
install(DIRECTORY "${CMAKE_SOURCE_DIR}/configs" DESTINATION ${CMAKE_INSTALL_DATADIR}/blockshock)
install(FILES "${CMAKE_SOURCE_DIR}/bsrun/completion.bash" RENAME bsrun
        DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions)
install(FILES "${CMAKE_SOURCE_DIR}/bsrun/completion.zsh" RENAME _bsrun DESTINATION ${CMAKE_INSTALL_DATADIR}/zsh/site-functions)

file(READ "${CMAKE_SOURCE_DIR}/include/blockshock/abi.h" abi_text)
string(REGEX MATCH "BS_ABI_MAJOR ([0-9]+)" _ "${abi_text}")
set(BS_ABI_MAJOR ${CMAKE_MATCH_1})
string(REGEX MATCH "BS_ABI_MINOR ([0-9]+)" _ "${abi_text}")
set(BS_ABI_MINOR ${CMAKE_MATCH_1})
# From the .pc files back to the prefix, however deep the library folder lies: the tree may be moved whole.
file(RELATIVE_PATH BS_PC_TO_PREFIX "${CMAKE_INSTALL_FULL_LIBDIR}/pkgconfig" "${CMAKE_INSTALL_PREFIX}")
string(REGEX REPLACE "/$" "" BS_PC_TO_PREFIX "${BS_PC_TO_PREFIX}")
# And from the prefix to them, so that all that they name moves with the prefix that a packager gives.
file(RELATIVE_PATH BS_PC_LIBDIR "${CMAKE_INSTALL_PREFIX}" "${CMAKE_INSTALL_FULL_LIBDIR}")
foreach(pc blockshock blockshock-graph blockshock-tp blockshock-text blockshock-plugin)
  configure_file("${CMAKE_SOURCE_DIR}/pkgconfig/${pc}.pc.in" "${CMAKE_BINARY_DIR}/pkgconfig/${pc}.pc" @ONLY)
  install(FILES "${CMAKE_BINARY_DIR}/pkgconfig/${pc}.pc" DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
endforeach()

set(BS_CMAKE_DIR ${CMAKE_INSTALL_LIBDIR}/cmake/Blockshock)
configure_package_config_file("${CMAKE_SOURCE_DIR}/cmake/BlockshockConfig.cmake.in"
  "${CMAKE_BINARY_DIR}/BlockshockConfig.cmake" INSTALL_DESTINATION ${BS_CMAKE_DIR}
  PATH_VARS CMAKE_INSTALL_INCLUDEDIR CMAKE_INSTALL_LIBDIR CMAKE_INSTALL_BINDIR CMAKE_INSTALL_DATADIR)
write_basic_package_version_file("${CMAKE_BINARY_DIR}/BlockshockConfigVersion.cmake" COMPATIBILITY SameMajorVersion)
install(FILES "${CMAKE_BINARY_DIR}/BlockshockConfig.cmake" "${CMAKE_BINARY_DIR}/BlockshockConfigVersion.cmake"
              "${CMAKE_SOURCE_DIR}/cmake/plugin.map"
        DESTINATION ${BS_CMAKE_DIR})

if(BS_ONEDNN_FOUND AND BS_ONEDNN_LIBRARY MATCHES "^${BS_DEPS_DIR}")
  get_filename_component(BS_ONEDNN_REAL "${BS_ONEDNN_LIBRARY}" REALPATH)
  install(FILES "${BS_ONEDNN_REAL}" DESTINATION ${CMAKE_INSTALL_LIBDIR}/blockshock/vendor RENAME libdnnl.so.3)
endif()
