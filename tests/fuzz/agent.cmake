# Texts that an agent reads from other processes.

foreach(target card params)
  baton_fuzz(fuzz_${target} LIBS baton_static)
endforeach()
